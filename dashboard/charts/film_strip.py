"""Every GPU over time, one row each, coloured by state."""

from __future__ import annotations

from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from dash import dcc, html

from analytics.language.plain_text import plain
from analytics.language.quantities import Moment, Number, Span
from analytics.language.sentences import say, say_many
from analytics.render.wording import reclaimable
from dashboard.charts.panel import graph, layout, panel
from dashboard.charts.strip import heatmap, hover, state_legend
from dashboard.charts.tables import gpu_link, holder_links, host_link, table
from dashboard.charts.time_axis import time_axis
from dashboard.film import SORTS, shoot, sort_of
from dashboard.zoom import visible, zoom_note

if TYPE_CHECKING:
    from dashboard.film import Film
    from dashboard.palette import Palette
    from dashboard.view import View

GRAPH = "film-graph"
_MOST_LABELS = 24
_MOST_LISTED = 200
_ROW_PX = ((16, 18), (96, 9), (512, 6))
"""Up to so many rows, so many pixels each; of more rows fewer."""
_FEWEST_PX = 4

_SORT_NAMES = {"host": say("host"), "waste": say("unused time"), "holder": say("holder")}


def film_strip(view: View, colours: Palette) -> html.Section:
    """The panel."""
    film = shoot(view)
    rows = len(film.gpus)
    height_px = max(150, 60 + rows * next((px for most, px in _ROW_PX if rows <= most), _FEWEST_PX))
    finding = view.say(reclaimable(view.report))
    label = say_many(
        "Film strip: the state of {number} GPU in every {width} from {since} to {until}.",
        "Film strip: the state of {number} GPUs in every {width} from {since} to {until}.",
        rows,
        width=Span(film.bin_ms),
        since=Moment(visible(view)[0]),
        until=Moment(visible(view)[1]),
    )
    return panel(
        name="film",
        title=view.say(say("Every GPU, all the time")),
        question=view.say(
            say(
                "Which GPUs are held and do nothing, and since when? One row per GPU, one column per {width}; the colour is "
                "the state that took most of it. A click opens the GPU.",
                width=Span(film.bin_ms),
            )
        ),
        finding=" ".join([finding, *_cut(view, film)]),
        body=[
            html.Div([state_legend(view, colours), _sorting(view)], className="film-head"),
            zoom_note(view),
            html.Div(
                graph(GRAPH, _figure(view, film, colours, height_px), f"{view.say(label)} {finding}", height_px),
                className="film-rows",
                tabIndex="0",
            ),
            *hover(view, colours, film),
            _list(view, film),
        ],
        wide=True,
    )


def _sorting(view: View) -> html.Div:
    """The orders as links: dash's own radio buttons cannot be read by screen readers."""
    chosen = sort_of(view)
    orders = [
        dcc.Link(
            view.say(_SORT_NAMES[name]),
            href=view.query.but(sort="" if name == SORTS[0] else name).search or "?",
            className="here" if name == chosen else "",
        )
        for name in SORTS
    ]
    items = [html.Span(each, **({"aria-current": "true"} if each.className else {})) for each in orders]
    return html.Div([html.Span(view.say(say("Sorted by")), className="label"), *items], className="film-sorting")


def _cut(view: View, film: Film) -> list[str]:
    if len(film.gpus) == film.gpus_in_all:
        return []
    shown, every = Number(len(film.gpus)), Number(film.gpus_in_all)
    return [
        view.say(
            say("Shown are {shown} of {all} GPUs, those with the most unused time.", shown=shown, all=every)
        )
    ]  # fmt: skip


def _figure(view: View, film: Film, colours: Palette, height_px: int) -> go.Figure:
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


def _labels(view: View, film: Film) -> tuple[list[float], list[str]]:
    """What the rows are sorted by, at the middle of its rows: hosts, holders or ranks; of very many, some."""
    sort = sort_of(view)
    if sort == "waste":
        each = max(1, -(-len(film.gpus) // _MOST_LABELS))
        return [float(row) for row in range(0, len(film.gpus), each)], [
            plain(film.hosts[row], 22) for row in range(0, len(film.gpus), each)
        ]
    blocks: list[tuple[float, str]] = []
    row = 0
    nobody = view.say(say("(nobody)"))
    for name, members in groupby(film.hosts if sort == "host" else film.holders):
        size = len(list(members))
        blocks.append((row + (size - 1) / 2, nobody if name is None else plain(name, 22)))
        row += size
    kept = blocks[:: -(-len(blocks) // _MOST_LABELS)] if blocks else []
    return [position for position, _ in kept], [name for _, name in kept]


def _list(view: View, film: Film) -> html.Details:
    """The rows with links, for those who do not click into pictures."""
    header = ("GPU", "host", "longest held by", "unused GPU-hours")
    every = zip(film.gpus, film.hosts, film.holders, film.unused_ms, strict=True)
    rows: list[list[Any]] = [
        [gpu_link(view, gpu), host_link(view, host), holder_links(view, holder), view.language.hours(unused_ms)]
        for gpu, host, holder, unused_ms in islice(every, _MOST_LISTED)
    ]
    note = (
        [
            html.P(
                view.say(
                    say(
                        "Listed are the first {number}; choose a pool or a model to see others.",
                        number=Number(_MOST_LISTED),
                    )
                ),
                className="hint",
            )
        ]
        if len(film.gpus) > len(rows)
        else []
    )
    return html.Details(
        [
            html.Summary(view.say(say("The GPUs as a list"))),
            *note,
            table([view.say(say(each)) for each in header], rows, right=1),
        ]
    )
