"""The report as one HTML file, and as PDF: the same page with its print styles."""

from __future__ import annotations

from analytics.language.language import Language
from analytics.report.report import Report


class HtmlFormat:
    """`--format html`."""

    name = "html"
    suffix = ".html"

    def render(self, report: Report, language: Language) -> bytes:
        """The whole page."""
        from analytics.render.html.page import page

        return page(report, language).encode()


class PdfFormat:
    """`--format pdf`."""

    name = "pdf"
    suffix = ".pdf"

    def render(self, report: Report, language: Language) -> bytes:
        """The whole document; raises MissingExtraError."""
        from analytics.render.html.page import page
        from analytics.render.pdf import pdf

        return pdf(page(report, language))
