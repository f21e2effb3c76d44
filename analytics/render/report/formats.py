"""The report's formats, one file each: a name and a pure function from the report to text."""

from __future__ import annotations

from typing import Protocol

from analytics.language.sentences import Language
from analytics.render.report.json_format import JsonFormat
from analytics.render.report.markdown import MarkdownFormat
from analytics.render.report.other_formats import CsvFormat, HtmlFormat, PdfFormat
from analytics.render.report.text import TextFormat
from analytics.report.report import Report


class Format(Protocol):
    name: str
    suffix: str
    media_type: str

    def render(self, report: Report, language: Language) -> bytes:
        """Return the whole document. The same report gives the same bytes in every run."""
        ...


FORMATS: tuple[Format, ...] = (TextFormat(), MarkdownFormat(), HtmlFormat(), PdfFormat(), JsonFormat(), CsvFormat())
