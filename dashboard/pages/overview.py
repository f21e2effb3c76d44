"""The one page of this version: where the time went, which GPUs, how it changed, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from analytics.language.sentences import say
from analytics.report.wording import headline
from dashboard.charts.days import days
from dashboard.charts.film_strip import film_strip
from dashboard.charts.findings import findings
from dashboard.charts.idle import idle
from dashboard.charts.tiles import tiles
from dashboard.people import VIEWER

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source, View


class Overview:
    """`/`."""

    path = "/"
    name: str = say("Overview")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing: what it shows comes with the page."""

    def content(self, view: View, colours: Palette) -> html.Div:
        """Headline, tiles, charts and findings."""
        return html.Div(
            [
                html.P(headline(view.report), className="headline"),
                tiles(view, colours),
                html.Div(
                    [film_strip(view, colours), days(view, colours), idle(view, colours), findings(view)],
                    className="panels",
                ),
                _remarks(view),
            ]
        )


def _remarks(view: View) -> html.Section:
    remarks = [html.Li(remark.sentence) for remark in view.report.quality] or [html.Li("Nothing to remark.")]
    return html.Section([html.H2("Data quality", id="quality-title"), html.Ul(remarks)], className="panel wide")
