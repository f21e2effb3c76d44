"""The report as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.model import Report


class HtmlFormat:
    """`--format html`."""

    name = "html"
    suffix = ".html"

    def render(self, report: Report, language: Language) -> bytes:
        """The whole page."""
        from analytics.render.html import page

        return page(report, language).encode()
