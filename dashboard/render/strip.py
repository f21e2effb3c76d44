"""Timelines and detail pages: a heatmap, and what the browser needs to explain the place under the pointer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import plotly.graph_objects as go
from dash import dcc

from analytics.glossary import STATES
from analytics.language.sentences import Language, plain, tr, tr_many
from analytics.states import UNUSED
from analytics.tables.names import place_name
from analytics.tables.palette import ORDER, Palette
from dashboard.query import Query
from dashboard.render.rows import TimelineRows
from dashboard.render.states import capital, mixed, state_scale
from dashboard.timeline import HOSTS, Frames, GroupTimeline, PageTimeline
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_ms, to_ms

TOOLTIP = "timeline-tip"
WORDS = "timeline-words-of"
_MOST_RUNS = 12_000
"""The most changes of user that the browser gets; with more, the tooltip shows the state only."""
_MOST_WHOLE = 64
"""The most GPUs whose full names the browser gets; with more, it gets enough letters to distinguish them."""
_SHORTEST = 12
"""The fewest letters of a shortened name, as in `GPU-1ae8e3d9`."""


def heatmap(timeline: Frames, colours: Palette, rows: TimelineRows | None = None) -> go.Heatmap:
    """Return the frames in the states' colours; x is milliseconds since the epoch, y is the line."""
    start_ms = int(timeline.edges[0])
    columns: dict[str, Any] = (
        {"x0": start_ms + timeline.bin_ms / 2, "dx": timeline.bin_ms}
        if timeline.is_even
        else {"x": timeline.edges.tolist()}
    )
    paler = (mixed(colours.state[state], colours.card) for state in UNUSED)
    steps = [*(colours.state[state] for state in ORDER), colours.card, *paler]
    is_apart = rows is None or (rows.lines == 1 and not rows.is_thin)
    return go.Heatmap(
        z=timeline.frames if rows is None else rows.spread(timeline.frames),
        **columns,
        zmin=-0.5,
        zmax=len(steps) - 0.5,
        colorscale=state_scale(steps),
        showscale=False,
        hoverinfo="none",
        ygap=int(is_apart),
    )


def hover(colours: Palette, words: dict[str, Any]) -> list[Any]:
    """Return the tooltip and its words, which the browser looks up: a text per frame would far exceed the picture."""
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
    """Return the meaning of a frame without a state."""
    if view.report.scope.is_personal:
        return view.translate(tr("not of this team: nothing is shown"))
    return view.translate(tr("not seen: outside its first and last row"))


def gpu_words(
    view: View, timeline: PageTimeline, rows: TimelineRows | None = None, lines: Sequence[Mapping[str, Any] | None] = ()
) -> dict[str, Any]:
    """Return the tooltip's words for a timeline of GPUs, and the pages that a click on a GPU opens.

    `lines` has the name, unit and decimals of every trace of the figure; None for a trace without a tooltip.
    """
    runs, names = _runs(timeline)
    hosts = sorted(set(timeline.hosts))
    return {
        **_words(view, timeline, rows),
        "gpus": beginnings(timeline.gpus, {*view.whole.inventory.devices, *timeline.gpus}),
        "hosts": [plain(host) for host in hosts],
        "at": [hosts.index(host) for host in timeline.hosts],
        "open": [_opens(view, HOSTS, host) for host in hosts] if rows is not None and rows.is_thin else [],
        "runs": runs,
        "names": names,
        "lines": list(lines),
    }


def group_words(view: View, timeline: GroupTimeline, rows: TimelineRows) -> dict[str, Any]:
    """Return the tooltip's words for a timeline of pools or hosts; shares are counted from the drawn lines."""
    labels = (
        tr(
            "{name} \N{MIDDLE DOT} {gpus}",
            name=place_name(name),
            gpus=tr_many("{number} {GPU|GPUs}", totals.gpus),
        )
        for name, totals in zip(timeline.names, timeline.totals, strict=True)
    )
    return {
        **_words(view, timeline, rows),
        "states": [*(view.translate(STATES[state].title) for state in ORDER), capital(not_seen(view))],
        "gpus": [],
        "hosts": [view.translate(each) for each in labels],
        "at": list(range(len(timeline.names))),
        "open": [_opens(view, timeline.kind, name) for name in timeline.names],
        "runs": [],
        "names": [],
        "lines": [],
        "each": timeline.lines,
    }


def _words(view: View, timeline: Frames, rows: TimelineRows | None) -> dict[str, Any]:
    return {
        "states": [
            *(
                view.translate(tr("{label}: {value}", label=STATES[state].title, value=STATES[state].meaning))
                for state in ORDER
            ),
            not_seen(view),
            *(
                view.translate(tr("{state}, sampled: seen at moments, not confirmed", state=STATES[state].title))
                for state in UNUSED
            ),
        ],
        "start": int(timeline.edges[0]),
        "bin": timeline.bin_ms,
        "edges": [] if timeline.is_even else timeline.edges.tolist(),
        "each": 1,
        "gaps": [] if rows is None else list(rows.gaps),
        "gap": 0 if rows is None else rows.gap_lines,
        "zone": str(view.zone),
        "lang": view.language.code,
        "search": _inside(view).search,
    }


def _inside(view: View) -> Query:
    """Return the query of the pages that a row opens: window, scope, and the visible time."""
    return view.query.on_every_page.but(start=view.query.start, end=view.query.end)


def _opens(view: View, kind: str, name: str) -> str:
    """Return the address that a click opens on a row of several GPUs."""
    path = "/host" if kind == HOSTS else "/timeline"
    return path + _inside(view).but(**{kind: name}).search


def beginnings(names: Sequence[str], among: Collection[str]) -> list[str]:
    """Return the names, shortened to what distinguishes them if there are many: random names would fill the page."""
    if len(names) <= _MOST_WHOLE:
        return list(names)
    longest = max(map(len, among))
    fits = (length for length in range(_SHORTEST, longest) if len({name[:length] for name in among}) == len(among))
    length = next(fits, longest)
    return [name[:length] for name in names]


def _runs(timeline: PageTimeline) -> tuple[list[list[int]], list[str]]:
    """Return the users per row, alternating with numbers of columns, and their names; empty for too many changes."""
    if not timeline.had.size:
        return [], []
    first = np.ones(timeline.had.shape, bool)
    first[:, 1:] = timeline.had[:, 1:] != timeline.had[:, :-1]
    if int(first.sum()) > _MOST_RUNS:
        return [], []
    rows = []
    for had, begins in zip(timeline.had, first, strict=True):
        columns = np.flatnonzero(begins)
        lasted = np.diff(columns, append=had.size)
        rows.append(np.stack([had[columns], lasted], axis=1).ravel().tolist())
    return rows, [plain(name, 40) for name in timeline.names]


_MOST_MARKS = 10
_STEPS_MS = (
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 4, 7, 14, 28, 56, 112, 364)),
)


def time_axis(language: Language, colours: Palette, since_ms: int, until_ms: int, **more: Any) -> dict[str, Any]:
    """Return the x axis of a figure from one moment to another; a reader can select a part of it by dragging."""
    marks = marks_of(language, since_ms, until_ms)
    return {
        "type": "linear",
        "tickvals": [moment for moment, _ in marks],
        "ticktext": [label for _, label in marks],
        "showgrid": False,
        "ticks": "outside",
        "tickangle": 0,  # the style sheet leaves out every other label where labels would overlap
        "tickcolor": colours.line,
        "fixedrange": False,
        **more,
    }


def marks_of(language: Language, since_ms: int, until_ms: int) -> list[tuple[int, str]]:
    """Return moments at round local times with labels: `20 Nov` at midnight, else `06:00`; the first label has both."""
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
        # an hour that clocks skip becomes the next hour, which has a mark of its own
        shown = from_ms(moment_ms).astimezone(zone)
        if since_ms <= moment_ms <= until_ms and moment_ms > last_ms and shown.replace(tzinfo=None) == local:
            last_ms = moment_ms
            yield moment_ms, shown
