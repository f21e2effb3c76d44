"""Every GPU over time, and the hours of the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Input, Output, State, html

from analytics.language.sentences import say
from dashboard.access.people import VIEWER
from dashboard.charts.film_strip import GRAPH, film_strip
from dashboard.charts.hour_of_week import hour_of_week
from dashboard.charts.strip import TOOLTIP, WORDS
from dashboard.exports import links

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class Film:
    """`/film`."""

    path = "/film"
    name: str = say("Film strip")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:  # noqa: ARG002  # every page is given it
        """What the strip does in the browser: all of it becomes an address, and the page is made for that."""
        connect_strip(app, GRAPH)

    def content(self, view: View, colours: Palette) -> html.Div:
        """The strip, then the hours of the week."""
        files = html.Div(links(view, "gpus"), className="tools")
        return html.Div([files, html.Div([film_strip(view, colours), hour_of_week(view, colours)], className="panels")])


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
