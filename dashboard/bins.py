"""Bins of time for charts: round widths, which begin on round times of the reader's clocks."""

from __future__ import annotations

from datetime import tzinfo
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, floor_ms, from_ms

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
