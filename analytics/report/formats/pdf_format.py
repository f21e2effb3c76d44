"""The report as PDF: the HTML page with its print styles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.model import Report


class PdfFormat:
    """`--format pdf`."""

    name = "pdf"
    suffix = ".pdf"

    def render(self, report: Report, language: Language) -> bytes:
        """The whole document; raises MissingExtraError."""
        from analytics.report.html import page  # noqa: PLC0415  # templates and images take a while to load
        from analytics.report.pdf import pdf  # noqa: PLC0415

        return pdf(page(report, language))
