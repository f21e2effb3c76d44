"""Ranges of days on the clocks of a time zone, both ends inclusive."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo

from fallow.clock import LAST_YEAR, Window, to_ms
from fallow.errors import UsageError


def days_between(first: str, last: str) -> tuple[date | None, date | None]:
    """Two days as texts, None where one is empty; raises UsageError."""
    found = [_day(text) if text else None for text in (first, last)]
    if found[0] and found[1] and found[0] > found[1]:
        raise UsageError(f"the first day {first} is after the last, {last}", "swap them")
    return found[0], found[1]


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
        if text == day.isoformat() and 1970 < day.year < LAST_YEAR:  # what moments may be asked for, in any zone
            return day
    except ValueError:
        pass
    raise UsageError(f"'{text}' is not a day", f"write it as 2026-11-20, in the years 1971 to {LAST_YEAR - 1}")


def day_window(first: date | None, last: date | None, zone: tzinfo) -> Window:
    """From the beginning of one day to the end of another in a zone; None is open."""
    after = None if last is None else last + timedelta(days=1)
    starts = (None if day is None else to_ms(datetime.combine(day, time.min, zone)) for day in (first, after))
    return Window(*starts)
