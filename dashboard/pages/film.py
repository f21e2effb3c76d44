"""Every GPU over time, and the hours of the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Input, Output, State, html

from analytics.capacity.hour_of_week import hours_of_week
from analytics.language.sentences import say
from analytics.sections.hour_of_week import hour_of_week
from dashboard.exports import links
from dashboard.pages.page import Page
from dashboard.render.film_strip import GRAPH, film_strip
from dashboard.render.panel import section_panel
from dashboard.render.strip import TOOLTIP, WORDS

if TYPE_CHECKING:
    from analytics.capacity.hour_of_week import HoursOfWeek
    from analytics.sections.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class Film(Page):
    path = "/film"
    name: str = say("Film strip")

    def connect(self, app: Any, source: Source) -> None:  # noqa: ARG002  # every page is given it
        """What the strip does in the browser: all of it becomes an address, and the page is made for that."""
        connect_strip(app, GRAPH)

    def content(self, view: View, colours: Palette) -> html.Div:
        """The strip, then the hours of the week."""
        files = html.Div(links(view, "gpus"), className="tools")
        hours = section_panel(view, colours, hour_of_week(_hours(view), view.zone))
        return html.Div([files, html.Div([film_strip(view, colours), hours], className="panels")])


def _hours(view: View) -> HoursOfWeek | None:
    """Of the weeks up to the window's end, whatever the window's length: made once for all that is zoomed into."""

    def make() -> HoursOfWeek | None:
        spans = view.whole.narrowed(view.whole.ledger.whole, view.report.scope).stretches
        return hours_of_week(spans, view.report.summary.until_ms, view.zone)

    key = ("hours of the week", view.query.on_every_page, view.reader.role, view.reader.team)
    return view.made.of(key, make)  # type: ignore[no-any-return]


def connect_strip(app: Any, graph: str) -> None:
    """Tooltip, click and zoom of a graph with a strip in it; no word of it goes to the server but by the address."""
    app.clientside_callback(
        ClientsideFunction("film", "tooltip"),
        Output(TOOLTIP, "show", allow_duplicate=True),
        Output(TOOLTIP, "bbox", allow_duplicate=True),
        Output(TOOLTIP, "children", allow_duplicate=True),
        Input(graph, "hoverData"),
        State(WORDS, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("film", "open"),
        Output("url", "pathname", allow_duplicate=True),
        Output("url", "search", allow_duplicate=True),
        Input(graph, "clickData"),
        State(WORDS, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("film", "zoom"),
        Output("url", "search", allow_duplicate=True),
        Input(graph, "relayoutData"),
        State("url", "search"),
        prevent_initial_call=True,
    )
