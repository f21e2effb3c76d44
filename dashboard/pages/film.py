"""Every GPU over time, and the hours of the week."""

from __future__ import annotations

from itertools import groupby, islice
from typing import Any

import plotly.graph_objects as go
from dash import ClientsideFunction, Input, Output, State, dcc, html

from analytics.capacity.hour_of_week import HoursOfWeek, hours_of_week
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Number, Span
from analytics.language.sentences import tr, tr_many
from analytics.sections.hour_of_week import hour_of_week
from analytics.sections.palette import ORDER, Palette
from analytics.sections.section import LinkedCell, Section, SectionColumn
from analytics.sections.wording import reclaimable
from dashboard.exports import links
from dashboard.film import SORTS, PageFilm, shoot, sort_of
from dashboard.pages.page import Page
from dashboard.render.layout import layout
from dashboard.render.panel import graph, panel, section_panel
from dashboard.render.states import legend
from dashboard.render.strip import TOOLTIP, WORDS, heatmap, hover, time_axis
from dashboard.render.tables import table
from dashboard.source import LakeSource
from dashboard.view import View
from dashboard.zoom import visible, zoom_note


class FilmPage(Page):
    path = "/film"
    name: str = tr("Film strip")

    def connect(self, app: Any, source: LakeSource) -> None:  # noqa: ARG002  # every page is given it
        """What the strip does in the browser: all of it becomes an address, and the page is made for that."""
        connect_strip(app, GRAPH)

    def content(self, view: View, colours: Palette) -> html.Div:
        """The strip, then the hours of the week."""
        files = html.Div(links(view, "gpus"), className="tools")
        hours = section_panel(view, colours, hour_of_week(_hours(view), view.report))
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


GRAPH = "film-graph"
_MOST_LABELS = 24
_MOST_LISTED = 200
_ROW_PX = ((16, 18), (96, 9), (512, 6))
"""Up to so many rows, so many pixels each; of more rows fewer."""
_FEWEST_PX = 4

_SORT_NAMES = {"host": tr("host"), "waste": tr("unused time"), "holder": tr("user")}


def film_strip(view: View, colours: Palette) -> html.Section:
    """The panel."""
    film = shoot(view)
    rows = len(film.gpus)
    height_px = max(150, 60 + rows * next((px for most, px in _ROW_PX if rows <= most), _FEWEST_PX))
    finding = view.translate(reclaimable(view.report))
    label = tr_many(
        "Film strip: the state of {number} GPU in every {width} from {since} to {until}.",
        "Film strip: the state of {number} GPUs in every {width} from {since} to {until}.",
        rows,
        width=Span(film.bin_ms),
        since=Moment(visible(view)[0]),
        until=Moment(visible(view)[1]),
    )
    return panel(
        name="film",
        title=view.translate(tr("Every GPU, all the time")),
        question=view.translate(
            tr(
                "Which GPUs are held and do nothing, and since when? One row per GPU, one column per {width}; the colour is "
                "the state that took most of it. A click opens the GPU.",
                width=Span(film.bin_ms),
            )
        ),
        finding=" ".join([finding, *_cut(view, film)]),
        body=[
            html.Div([legend(view, colours, ORDER), _sorting(view)], className="film-head"),
            zoom_note(view),
            html.Div(
                graph(GRAPH, _figure(view, film, colours, height_px), f"{view.translate(label)} {finding}", height_px),
                className="film-rows",
                tabIndex="0",
            ),
            *hover(view, colours, film),
            _list(view, colours, film),
        ],
        wide=True,
    )


def _sorting(view: View) -> html.Div:
    """The orders as links: dash's own radio buttons cannot be read by screen readers."""
    chosen = sort_of(view)
    orders = [
        dcc.Link(
            view.translate(_SORT_NAMES[name]),
            href=view.query.but(sort="" if name == SORTS[0] else name).search or "?",
            className="here" if name == chosen else "",
        )
        for name in SORTS
    ]
    items = [html.Span(each, **({"aria-current": "true"} if each.className else {})) for each in orders]
    return html.Div([html.Span(view.translate(tr("Sorted by")), className="label"), *items], className="film-sorting")


def _cut(view: View, film: PageFilm) -> list[str]:
    if len(film.gpus) == film.gpus_in_all:
        return []
    shown, every = Number(len(film.gpus)), Number(film.gpus_in_all)
    return [
        view.translate(
            tr("Shown are {shown} of {all} GPUs, those with the most unused time.", shown=shown, all=every)
        )
    ]  # fmt: skip


def _figure(view: View, film: PageFilm, colours: Palette, height_px: int) -> go.Figure:
    positions, names = _labels(view, film)
    figure = go.Figure(heatmap(film, colours))
    since_ms, until_ms = int(film.edges[0]), int(film.edges[-1])
    figure.update_layout(
        layout(
            colours,
            height_px,
            xaxis=time_axis(view.language, colours, since_ms, until_ms, side="top"),
            yaxis={"autorange": "reversed", "showgrid": False, "tickvals": positions, "ticktext": names},
            hovermode="closest",
            dragmode="zoom",
        )
    )
    return figure


def _labels(view: View, film: PageFilm) -> tuple[list[float], list[str]]:
    """What the rows are sorted by, at the middle of its rows: hosts, holders or ranks; of very many, some."""
    sort = sort_of(view)
    if sort == "waste":
        each = max(1, -(-len(film.gpus) // _MOST_LABELS))
        return [float(row) for row in range(0, len(film.gpus), each)], [
            plain(film.hosts[row], 22) for row in range(0, len(film.gpus), each)
        ]
    blocks: list[tuple[float, str]] = []
    row = 0
    nobody = view.translate(tr("(nobody)"))
    for name, members in groupby(film.hosts if sort == "host" else film.holders):
        size = len(list(members))
        blocks.append((row + (size - 1) / 2, nobody if name is None else plain(name, 22)))
        row += size
    kept = blocks[:: -(-len(blocks) // _MOST_LABELS)] if blocks else []
    return [position for position, _ in kept], [name for _, name in kept]


def _list(view: View, colours: Palette, film: PageFilm) -> html.Details:
    """The rows with links, for those who do not click into pictures."""
    every = zip(film.gpus, film.hosts, film.holders, film.unused_ms, strict=True)
    rows = [
        (LinkedCell(gpu, "gpu", gpu), host, tr("(nobody)") if holder is None else holder, GpuHours(unused_ms))
        for gpu, host, holder, unused_ms in islice(every, _MOST_LISTED)
    ]
    columns = (
        SectionColumn("gpu", tr("GPU"), "gpu"),
        SectionColumn("host", tr("host"), "host"),
        SectionColumn("holder", tr("longest held by"), "holder"),
        SectionColumn("unused", tr("unused GPU-hours"), "gpu_hours"),
    )
    listed = Section("film", "", "", "", columns)
    first = tr("Listed are the first {number}; choose a pool or a model to see others.", number=Number(_MOST_LISTED))
    note = [html.P(view.translate(first), className="hint")] if len(film.gpus) > len(rows) else []
    summary = html.Summary(view.translate(tr("The GPUs as a list")))
    return html.Details([summary, *note, table(view, colours, listed, rows, "linked")])
