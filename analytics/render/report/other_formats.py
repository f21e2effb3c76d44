"""The report as one HTML file, as PDF (the same page with print styles), and as CSV (a line per figure of the JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from analytics.language.sentences import Language
from analytics.render.report.json_format import content
from analytics.report.report import Report
from fallow.csv_text import csv_text


class HtmlFormat:
    name = "html"
    suffix = ".html"
    media_type = "text/html"

    def render(self, report: Report, language: Language) -> bytes:
        from analytics.render.html.page import page

        return page(report, language).encode()


class PdfFormat:
    name = "pdf"
    suffix = ".pdf"
    media_type = "application/pdf"

    def render(self, report: Report, language: Language) -> bytes:
        from analytics.render.html.page import page
        from analytics.render.pdf import pdf

        return pdf(page(report, language))


class CsvFormat:
    name = "csv"
    suffix = ".csv"
    media_type = "text/csv"

    def render(self, report: Report, language: Language) -> bytes:  # noqa: ARG002  # for machines
        """Return the columns `figure`, a path such as `ledger.gpu_hours.free`, and `value`, empty if unknown."""
        return csv_text(("figure", "value"), _figures("", content(report))).encode()


def _figures(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _figures(f"{path}.{name}" if path else str(name), each)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value, start=1):
            yield from _figures(f"{path}.{number}", each)
    else:
        yield path, json.dumps(value) if isinstance(value, bool) else value
