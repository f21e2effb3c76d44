"""A time axis in the reader's zone: x is milliseconds since the epoch, and the marks say what the clocks there showed.

Plotly's own date axis knows no zones: on the day on which clocks change it would be an hour off on one side.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_ms, to_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from analytics.language.languages import Language
    from dashboard.palette import Palette

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
