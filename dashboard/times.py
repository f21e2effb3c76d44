"""Times on the pages: the days that a reader can ask for, the part that a chart is zoomed to, and its bins.

Any days are chosen in two fields, which the browser makes its own date fields (assets/days.js). `start` and `end` of the
address are the part of the window that a chart is zoomed to. Bins have round widths and begin on round times of the reader's
clocks.
"""

from __future__ import annotations

from datetime import date, tzinfo
from itertools import pairwise
from typing import Any

import numpy as np
from dash import dcc, html
from numpy.typing import NDArray

from analytics.language.quantities import Date, Moment
from analytics.language.sentences import tr
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Window, floor_ms, from_ms, parse_window
from fallow.errors import UsageError

_DAYS = {"first": tr("from"), "last": tr("to")}
"""The fields of the form for days, by the names that they have in the address."""


def day_fields(view: View, into: str, first: str, last: str) -> list[Any]:
    """The fields with the days that they begin with, which days there are, and the button.

    `into` is what of the address the days go into: `window`, or `against` for those to compare with.
    """
    known = days_of(view.report.heading.known, view.zone)
    said = tr(
        "There are data from {first} to {last}; days are whole, in {zone}.",
        first=Date(known[0]),
        last=Date(known[1]),
        zone=str(view.zone),
    )
    wrong = view.translate(tr("The first day is after the last."))
    boxes = [
        html.Label(
            [
                html.Span(view.translate(label)),
                dcc.Input(
                    id=f"{into}-{name}",
                    name=name,
                    type="text",
                    value=value,
                    placeholder="2026-11-20",
                    autoComplete="off",
                    debounce=True,
                ),
            ],
            htmlFor=f"{into}-{name}",
        )
        for (name, label), value in zip(_DAYS.items(), (first, last), strict=True)
    ]
    return [
        html.Div(
            boxes,
            className="days",
            **{"data-into": into, "data-min": str(known[0]), "data-max": str(known[1]), "data-wrong": wrong},
        ),
        html.P(view.translate(said), className="hint", id=f"{into}-days-hint"),
        html.Button(view.translate(tr("Show these days")), type="submit", className="button"),
    ]


def days_of(window: Window, zone: tzinfo) -> tuple[date, date]:
    """The first and the last day on which some of a window with both ends lies."""
    first, last = (
        from_ms(moment or 0).astimezone(zone).date() for moment in (window.since_ms, (window.until_ms or 1) - 1)
    )
    return first, max(first, last)


def shown_days(view: View) -> tuple[date, date]:
    """The days of the window that is shown."""
    seen = view.report.ledger.seen
    return days_of(Window(seen.since_ms, seen.until_ms), view.zone)


_LEAST_MS = 10 * MINUTE_MS
"""The least of the time that can be in sight."""
_CLOSER, _WIDER, _EARLIER, _LATER = tr("closer"), tr("wider"), tr("earlier"), tr("later")


def visible(view: View) -> tuple[int, int]:
    """Start and end in milliseconds: what the address names of the window, or all of it where that leaves nothing."""
    since_ms, until_ms = view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms
    try:
        asked = parse_window(view.query.start or None, view.query.end or None)
    except UsageError:
        asked = Window()
    start = max(since_ms, asked.since_ms or since_ms)
    end = min(until_ms, asked.until_ms or until_ms)
    return (start, end) if start < end else (since_ms, until_ms)


def is_zoomed(view: View) -> bool:
    """Whether it is less than the window."""
    return visible(view) != (view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms)


def zoom_note(view: View) -> html.Div:
    """What is in sight, and the ways from there for those who drag and double-click nothing."""
    start, end = visible(view)
    links = [
        dcc.Link(name, href=view.query.but(start=_written(begins), end=_written(ends)).search)
        for name, (begins, ends) in _ways(view).items()
    ]
    if is_zoomed(view):
        said = tr("In sight: {since} to {until}.", since=Moment(start), until=Moment(end))
        whole = view.query.but(start="", end="").search or "?"
        links.append(dcc.Link(tr("Show the whole window"), href=whole))
    else:
        said = tr("Drag along the time to see a part of it in more detail.")
    return html.Div([html.Span(said), *links], className="film-sorting hint zoom")


def _ways(view: View) -> dict[str, tuple[int, int]]:
    """What else could be in sight: half of it or twice as much, and the halves of it before and after."""
    start, end = visible(view)
    since_ms, until_ms = view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms
    quarter = floor_ms((end - start) // 4, MINUTE_MS)
    found: dict[str, tuple[int, int]] = {}
    if end - start >= 2 * _LEAST_MS:
        found[_CLOSER] = (start + quarter, end - quarter)
    if is_zoomed(view) and end - start < (until_ms - since_ms) // 2:
        found[_WIDER] = (max(since_ms, start - 2 * quarter), min(until_ms, end + 2 * quarter))
    if start > since_ms:
        by_ms = min(2 * quarter, start - since_ms)
        found[_EARLIER] = (start - by_ms, end - by_ms)
    if end < until_ms:
        by_ms = min(2 * quarter, until_ms - end)
        found[_LATER] = (start + by_ms, end + by_ms)
    return found


def _written(moment_ms: int) -> str:
    """A moment as the address has it."""
    return f"{from_ms(moment_ms):%Y-%m-%dT%H:%MZ}"


WIDTHS_MS = (
    *(SECOND_MS * seconds for seconds in (1, 2, 5, 10, 15, 20, 30)),
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 20, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 4, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 7, 28, 364)),
)
_SLOT_MS = 15 * MINUTE_MS
"""Every zone's distance from UTC is whole quarters of an hour, and so is every change of clocks."""
_MONDAY_MS = 3 * DAY_MS
"""1970 began on a Thursday; weeks begin on Mondays."""


def width_of(span_ms: int, most: float, least_ms: int) -> int:
    """The shortest round width, no shorter than `least_ms`, of which no more than `most` are as long as the time."""
    return next((width for width in WIDTHS_MS if span_ms / width <= most and width >= least_ms), WIDTHS_MS[-1])


def edges(zone: tzinfo, since_ms: int, until_ms: int, width_ms: int) -> NDArray[np.int64]:
    """Where the bins of a time begin, and where the last one ends: all of the time lies within them.

    On the days on which clocks change, bins above an hour have an hour more or less; of an hour that comes twice, each time has
    bins of its own.
    """
    if width_ms < 2 * _SLOT_MS:
        offset_ms = _offset_ms(since_ms, zone)
        first_ms = floor_ms(since_ms + offset_ms, width_ms) - offset_ms
        return first_ms + width_ms * np.arange((until_ms - first_ms - 1) // width_ms + 2, dtype=np.int64)
    around_ms = width_ms + DAY_MS
    slots = np.arange(floor_ms(since_ms - around_ms, _SLOT_MS), until_ms + around_ms, _SLOT_MS, dtype=np.int64)
    offsets = _offsets(slots, zone)
    begins = np.diff((slots + offsets + _MONDAY_MS) // width_ms) != 0
    if width_ms <= HOUR_MS:
        begins |= np.diff(offsets) != 0
    found = slots[1:][begins]
    first, last = np.searchsorted(found, since_ms, "right") - 1, np.searchsorted(found, until_ms)
    within: NDArray[np.int64] = found[first : last + 1]
    return within


def _offsets(slots: NDArray[np.int64], zone: tzinfo) -> NDArray[np.int64]:
    """How far the clocks are ahead of UTC in each slot; slot by slot only for days on which they change."""
    days, of_slot = np.unique(slots // DAY_MS, return_inverse=True)
    at = [_offset_ms(int(day) * DAY_MS, zone) for day in (*days, days[-1] + 1)]
    offsets = np.array(at[:-1], dtype=np.int64)[of_slot]
    for number, (before, after) in enumerate(pairwise(at)):
        if before != after:
            changing = of_slot == number
            offsets[changing] = [_offset_ms(int(slot), zone) for slot in slots[changing]]
    return offsets


def _offset_ms(moment_ms: int, zone: tzinfo) -> int:
    offset = from_ms(moment_ms).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) * SECOND_MS
