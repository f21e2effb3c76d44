"""Times on the pages: the choice of days, the visible part of a window, and the bins of charts.

A reader chooses days in two fields, which the browser turns into its own date fields (assets/days.js). `start` and
`end` of the address are the visible part of the window. Bins have round widths and begin at round local times.
"""

from __future__ import annotations

from datetime import date, tzinfo
from itertools import pairwise
from typing import Any

import numpy as np
from dash import dcc, html
from numpy.typing import NDArray

from analytics.language.sentences import Date, Moment, tr
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Window, floor_ms, from_ms, parse_window
from fallow.errors import UsageError

_DAYS = {"first": tr("from"), "last": tr("to")}
"""The fields of the form for days, by the names that they have in the address."""


def day_fields(view: View, into: str, first: str, last: str) -> list[Any]:
    """Return the fields with their initial days, a hint with the available days, and the button.

    `into` is the use of the days in the address: `window`, or `against` for the days to compare with.
    """
    known = days_of(view.report.heading.known, view.zone)
    hint = tr(
        "Data are available from {first} to {last}. Days are whole days in {zone}.",
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
        html.P(view.translate(hint), className="hint", id=f"{into}-days-hint"),
        html.Button(view.translate(tr("Show these days")), type="submit", className="button"),
    ]


def days_of(window: Window, zone: tzinfo) -> tuple[date, date]:
    """Return the first and the last day of a window with both ends."""
    first, last = (
        from_ms(moment or 0).astimezone(zone).date() for moment in (window.since_ms, (window.until_ms or 1) - 1)
    )
    return first, max(first, last)


def shown_days(view: View) -> tuple[date, date]:
    """Return the first and the last day of the view's window."""
    seen = view.report.ledger.seen
    return days_of(Window(seen.since_ms, seen.until_ms), view.zone)


_LEAST_MS = 10 * MINUTE_MS
"""The shortest visible time."""
_CLOSER, _WIDER, _EARLIER, _LATER = tr("closer"), tr("wider"), tr("earlier"), tr("later")


def visible(view: View) -> tuple[int, int]:
    """Return start and end of the visible time in milliseconds: the address's part of the window, else all of it."""
    since_ms, until_ms = view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms
    try:
        asked = parse_window(view.query.start or None, view.query.end or None, zone=view.zone)
    except UsageError:
        asked = Window()
    start = max(since_ms, asked.since_ms or since_ms)
    end = min(until_ms, asked.until_ms or until_ms)
    return (start, end) if start < end else (since_ms, until_ms)


def is_zoomed(view: View) -> bool:
    """Return whether the visible time is shorter than the window."""
    return visible(view) != (view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms)


def zoom_note(view: View) -> html.Div:
    """Return the visible time in words, and links to other times for readers who do not drag or double-click."""
    start, end = visible(view)
    links = [
        dcc.Link(name, href=view.query.but(start=_address_moment(begins), end=_address_moment(ends)).search)
        for name, (begins, ends) in _other_times(view).items()
    ]
    if is_zoomed(view):
        note = tr("In sight: {since} to {until}.", since=Moment(start), until=Moment(end))
        whole = view.query.but(start="", end="").search or "?"
        links.append(dcc.Link(tr("Show the whole window"), href=whole))
    else:
        note = tr("Drag along the time axis to see a part of it in more detail.")
    return html.Div([html.Span(note), *links], className="timeline-sorting hint zoom")


def _other_times(view: View) -> dict[str, tuple[int, int]]:
    """Return other times to show: half or twice the visible time, and that time moved by half to earlier or later."""
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


def _address_moment(moment_ms: int) -> str:
    return f"{from_ms(moment_ms):%Y-%m-%dT%H:%MZ}"


WIDTHS_MS = (
    *(SECOND_MS * seconds for seconds in (1, 2, 5, 10, 15, 20, 30)),
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 20, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 4, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 7, 28, 364)),
)
_SLOT_MS = 15 * MINUTE_MS
"""Every zone's offset from UTC is a multiple of a quarter of an hour, and so is every change of clocks."""
_MONDAY_MS = 3 * DAY_MS
"""1970 began on a Thursday; weeks begin on Mondays."""


def width_of(span_ms: int, most: float, least_ms: int) -> int:
    """Return the shortest round width, at least `least_ms`, with which at most `most` bins cover the time."""
    return next((width for width in WIDTHS_MS if span_ms / width <= most and width >= least_ms), WIDTHS_MS[-1])


def edges(zone: tzinfo, since_ms: int, until_ms: int, width_ms: int) -> NDArray[np.int64]:
    """Return the starts of the bins that cover a time, and the end of the last bin.

    When clocks change, a bin above an hour is an hour longer or shorter. An hour that occurs twice has separate bins
    for both occurrences.
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
    """Return the offset from UTC in every slot; it is looked up slot by slot only on days on which clocks change."""
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
