"""Every GPU over time, one row each, coloured by state."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from dash import dcc, html

from analytics.ledger.text import MEANING, plain
from analytics.report.wording import reclaimable
from dashboard.charts.panel import graph, layout, legend, panel
from dashboard.film import NOT_SEEN, shoot
from dashboard.palette import ORDER, Palette
from fallow.clock import format_duration, format_ms

if TYPE_CHECKING:
    from dashboard.film import Film
    from dashboard.source import View

_MOST_LABELS = 24


def film_strip(view: View, colours: Palette) -> html.Section:
    """The panel."""
    film = shoot(view)
    rows = len(film.gpus)
    height_px = min(720, max(150, 60 + rows * (18 if rows <= 16 else 7)))
    width = format_duration(film.bin_ms)
    label = f"Film strip: the state of {rows} GPUs in every {width} of the window. {reclaimable(view.report)}"
    return panel(
        name="film",
        title="Every GPU, all the time",
        question=f"Which GPUs are held and do nothing, and since when? One row per GPU, one column per {width} (UTC); "
        "the colour is the state that took most of it.",
        finding=" ".join([reclaimable(view.report), *_cut(film)]),
        body=[
            legend(colours, ORDER),
            graph("film-strip", _figure(film, colours, height_px), label, height_px),
            dcc.Tooltip(
                id="film-tooltip",
                direction="top",
                className="tooltip",
                background_color=colours.card,
                border_color=colours.muted,
                style={"color": colours.text},
            ),
            dcc.Store(id="film-words", data=_words(film)),
        ],
        wide=True,
    )


def _cut(film: Film) -> list[str]:
    if len(film.gpus) == film.gpus_in_all:
        return []
    return [f"Shown are {len(film.gpus):,} of {film.gpus_in_all:,} GPUs, those with the most unused time."]


def _words(film: Film) -> dict[str, Any]:
    """What the tooltip says: looked up in the browser, because a text per frame would be many times the picture."""
    return {
        "rows": [f"{plain(host)} · {plain(gpu)}" for host, gpu in zip(film.hosts, film.gpus, strict=True)],
        "states": [*(f"{state}: {MEANING[state]}" for state in ORDER), "not seen: outside its first and last row"],
    }


def _figure(film: Film, colours: Palette, height_px: int) -> go.Figure:
    steps = [*(colours.state[state] for state in ORDER), colours.card]
    scale = [[(index + edge) / len(steps), colour] for index, colour in enumerate(steps) for edge in (0, 1)]
    # an axis reads a time without a zone as it stands: UTC
    times = [format_ms(film.start_ms + column * film.bin_ms)[:-1] for column in (0, 1)]
    heatmap = go.Heatmap(
        z=film.frames,
        x0=times[0],
        dx=film.bin_ms,
        xtype="scaled",
        zmin=-0.5,
        zmax=NOT_SEEN + 0.5,
        colorscale=scale,
        showscale=False,
        hoverinfo="none",
        ygap=1 if len(film.gpus) <= 96 else 0,
    )
    positions, names = _host_labels(film)
    figure = go.Figure(heatmap)
    figure.update_layout(
        layout(
            colours,
            height_px,
            xaxis={"type": "date", "showgrid": False, "ticks": "outside", "tickcolor": colours.grid},
            yaxis={"autorange": "reversed", "showgrid": False, "tickvals": positions, "ticktext": names},
            hovermode="closest",
        )
    )
    return figure


def _host_labels(film: Film) -> tuple[list[float], list[str]]:
    """Each host's name at the middle of its rows; of very many hosts, some."""
    blocks: list[tuple[float, str]] = []
    row = 0
    for host, members in groupby(film.hosts):
        size = len(list(members))
        blocks.append((row + (size - 1) / 2, plain(host, 22)))
        row += size
    kept = blocks[:: -(-len(blocks) // _MOST_LABELS)]
    return [position for position, _ in kept], [name for _, name in kept]
