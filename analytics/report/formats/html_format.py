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
        from analytics.report.html import page  # noqa: PLC0415  # templates and images take a while to load

        return page(report, language).encode()
