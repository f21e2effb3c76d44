"""A film as a heatmap, and what the browser needs to say what lies under the pointer. For film strips and detail pages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import plotly.graph_objects as go
from dash import dcc

from analytics.glossary import STATES
from analytics.language.language import Language
from analytics.language.plain_text import plain
from analytics.language.sentences import tr, tr_many
from analytics.tables.names import place_name
from analytics.tables.palette import ORDER, Palette
from dashboard.film import HOSTS, NOT_SEEN, Frames, GroupFilm, PageFilm
from dashboard.query import Query
from dashboard.render.rows import FilmRows
from dashboard.render.states import capital, state_scale
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_ms, to_ms

TOOLTIP = "film-tip"
WORDS = "film-words-of"
_MOST_RUNS = 12_000
"""Changes of holder that go to the browser; of more the tooltip names the state alone."""
_MOST_WHOLE = 64
"""GPUs whose whole names go to the browser; of more, as many letters as tell them apart."""
_SHORTEST = 12
"""Letters of `GPU-1ae8e3d9`."""


def heatmap(film: Frames, colours: Palette, rows: FilmRows | None = None) -> go.Heatmap:
    """The frames in the states' colours; x is milliseconds since the epoch, y the line."""
    start_ms = int(film.edges[0])
    columns: dict[str, Any] = (
        {"x0": start_ms + film.bin_ms / 2, "dx": film.bin_ms} if film.is_even else {"x": film.edges.tolist()}
    )
    steps = [*(colours.state[state] for state in ORDER), colours.card]
    is_apart = rows is None or (rows.lines == 1 and not rows.is_thin)
    return go.Heatmap(
        z=film.frames if rows is None else rows.spread(film.frames),
        **columns,
        zmin=-0.5,
        zmax=NOT_SEEN + 0.5,
        colorscale=state_scale(steps),
        showscale=False,
        hoverinfo="none",
        ygap=int(is_apart),
    )


def hover(colours: Palette, words: dict[str, Any]) -> list[Any]:
    """The tooltip and its words: looked up in the browser, because a text per frame would be many times the picture."""
    return [
        dcc.Tooltip(
            id=TOOLTIP,
            direction="top",
            className="tooltip",
            background_color=colours.card,
            border_color=colours.muted,
            style={"color": colours.text},
        ),
        dcc.Store(id=WORDS, data=words),
    ]


def not_seen(view: View) -> str:
    """What a frame without a state means."""
    if view.report.scope.is_personal:
        return view.translate(tr("not of this team: nothing is shown"))
    return view.translate(tr("not seen: outside its first and last row"))


def gpu_words(
    view: View, film: PageFilm, rows: FilmRows | None = None, lines: Sequence[Mapping[str, Any] | None] = ()
) -> dict[str, Any]:
    """What there is to say of a film of GPUs, and where a click on one leads.

    `lines` has for every trace of the figure its name, unit and decimals; None for those of which nothing is said.
    """
    runs, names = _runs(film)
    hosts = sorted(set(film.hosts))
    return {
        **_words(view, film, rows),
        "gpus": beginnings(film.gpus, {*view.whole.inventory.devices, *film.gpus}),
        "hosts": [plain(host) for host in hosts],
        "at": [hosts.index(host) for host in film.hosts],
        "open": [_opens(view, HOSTS, host) for host in hosts] if rows is not None and rows.is_thin else [],
        "runs": runs,
        "names": names,
        "lines": list(lines),
    }


def group_words(view: View, film: GroupFilm, rows: FilmRows) -> dict[str, Any]:
    """The same of a film whose rows are pools or hosts: shares are counted from the lines that are drawn."""
    said = (
        tr(
            "{name} \N{MIDDLE DOT} {gpus}",
            name=place_name(name),
            gpus=tr_many("{number} GPU", "{number} GPUs", totals.gpus),
        )
        for name, totals in zip(film.names, film.totals, strict=True)
    )
    return {
        **_words(view, film, rows),
        "states": [*(capital(view.translate(tr(state))) for state in ORDER), capital(not_seen(view))],
        "gpus": [],
        "hosts": [view.translate(each) for each in said],
        "at": list(range(len(film.names))),
        "open": [_opens(view, film.kind, name) for name in film.names],
        "runs": [],
        "names": [],
        "lines": [],
        "each": film.lines,
    }


def _words(view: View, film: Frames, rows: FilmRows | None) -> dict[str, Any]:
    return {
        "states": [
            *(view.translate(tr("{label}: {value}", label=tr(state), value=STATES[state].meaning)) for state in ORDER),
            not_seen(view),
        ],
        "start": int(film.edges[0]),
        "bin": film.bin_ms,
        "edges": [] if film.is_even else film.edges.tolist(),
        "each": 1,
        "gaps": [] if rows is None else list(rows.gaps),
        "gap": 0 if rows is None else rows.gap_lines,
        "zone": str(view.zone),
        "lang": view.language.code,
        "search": _inside(view).search,
    }


def _inside(view: View) -> Query:
    """What goes along to what a row stands for: window and scope, and the part of the time that is in sight."""
    return view.query.on_every_page.but(start=view.query.start, end=view.query.end)


def _opens(view: View, kind: str, name: str) -> str:
    """Where a click on a row leads that stands for more than one GPU."""
    path = "/host" if kind == HOSTS else "/film"
    return path + _inside(view).but(**{kind: name}).search


def beginnings(names: Sequence[str], among: Collection[str]) -> list[str]:
    """As much of each name as tells it from all others, where there are many: random names would be most of what is sent."""
    if len(names) <= _MOST_WHOLE:
        return list(names)
    longest = max(map(len, among))
    fits = (length for length in range(_SHORTEST, longest) if len({name[:length] for name in among}) == len(among))
    length = next(fits, longest)
    return [name[:length] for name in names]


def _runs(film: PageFilm) -> tuple[list[list[int]], list[str]]:
    """Per row who had it and for how many columns, by turns; nothing where that were too much."""
    if not film.had.size:
        return [], []
    first = np.ones(film.had.shape, bool)
    first[:, 1:] = film.had[:, 1:] != film.had[:, :-1]
    if int(first.sum()) > _MOST_RUNS:
        return [], []
    rows = []
    for had, begins in zip(film.had, first, strict=True):
        columns = np.flatnonzero(begins)
        lasted = np.diff(columns, append=had.size)
        rows.append(np.stack([had[columns], lasted], axis=1).ravel().tolist())
    return rows, [plain(name, 40) for name in film.names]


_MOST_MARKS = 10
_STEPS_MS = (
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 4, 7, 14, 28, 56, 112, 364)),
)


def time_axis(language: Language, colours: Palette, since_ms: int, until_ms: int, **more: Any) -> dict[str, Any]:
    """The x axis of a figure from one moment to another, for dragging a part out of it."""
    marks = marks_of(language, since_ms, until_ms)
    return {
        "type": "linear",
        "tickvals": [moment for moment, _ in marks],
        "ticktext": [label for _, label in marks],
        "showgrid": False,
        "ticks": "outside",
        "tickangle": 0,  # the style sheet leaves out every other one where they would be in each other's way
        "tickcolor": colours.grid,
        "fixedrange": False,
        **more,
    }


def marks_of(language: Language, since_ms: int, until_ms: int) -> list[tuple[int, str]]:
    """Moments on round local times and what to write there: `20 Nov` at midnight and where no day has been named, else `06:00`."""
    step_ms = next((step for step in _STEPS_MS if (until_ms - since_ms) / step <= _MOST_MARKS), _STEPS_MS[-1])
    found: list[tuple[int, str]] = []
    for moment_ms, local in _round_times(language.zone, since_ms, until_ms, step_ms):
        day = language.day(moment_ms).replace(str(local.year), "").strip()
        clock = f"{local:%H:%M}"
        within_day = clock if found else f"{clock}<br>{day}"
        found.append((moment_ms, day if step_ms >= DAY_MS or clock == "00:00" else within_day))
    return found


def _round_times(zone: tzinfo, since_ms: int, until_ms: int, step_ms: int) -> Iterator[tuple[int, datetime]]:
    first = from_ms(since_ms).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    last_ms = -1
    for count in range((until_ms - since_ms + 2 * DAY_MS) // step_ms + 2):
        local = first + timedelta(milliseconds=count * step_ms)
        moment_ms = to_ms(local.replace(tzinfo=zone))
        # an hour that clocks leave out comes out as the next one, which has a mark of its own
        shown = from_ms(moment_ms).astimezone(zone)
        if since_ms <= moment_ms <= until_ms and moment_ms > last_ms and shown.replace(tzinfo=None) == local:
            last_ms = moment_ms
            yield moment_ms, shown
