"""Weeks and ranges of days on the clocks of a time zone: ISO weeks, and days of which both ends are inclusive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from fallow.clock import LAST_YEAR, Window, from_ms, to_ms
from fallow.errors import UsageError

_LABEL = re.compile(r"(\d{4})-W(\d{1,2})")


@dataclass(frozen=True)
class Week:
    """Monday 00:00 to Monday 00:00 in a time zone; 167 or 169 hours where clocks change."""

    monday: date
    zone: tzinfo

    @property
    def label(self) -> str:
        """`2026-W46`."""
        year, number, _ = self.monday.isocalendar()
        return f"{year}-W{number:02}"

    @property
    def since_ms(self) -> int:
        """Its first moment."""
        return self._start(self.monday)

    @property
    def until_ms(self) -> int:
        """The first moment after it."""
        return self._start(self.monday + timedelta(days=7))

    @property
    def window(self) -> Window:
        """The span from its first moment to the first after it."""
        return Window(self.since_ms, self.until_ms)

    def before(self, weeks: int = 1) -> Week:
        """The week so many weeks earlier."""
        return Week(self.monday - timedelta(days=7 * weeks), self.zone)

    def _start(self, day: date) -> int:
        return to_ms(datetime.combine(day, time.min, self.zone))


def week_of(moment_ms: int, zone: tzinfo) -> Week:
    """The week in which a moment lies."""
    day = from_ms(moment_ms).astimezone(zone).date()
    return Week(day - timedelta(days=day.weekday()), zone)


def parse_week(text: str, zone: tzinfo, now_ms: int) -> Week:
    """The week that `2026-W46` names; `last` is the newest that is over at `now_ms`. Raises UsageError."""
    if text == "last":
        return week_of(now_ms, zone).before()
    match = _LABEL.fullmatch(text)
    try:
        if match is not None:
            week = Week(date.fromisocalendar(int(match[1]), int(match[2]), 1), zone)
            if 1970 < week.monday.year < LAST_YEAR:
                return week
    except ValueError:
        pass
    raise UsageError(f"'{text}' is not a week", "write it as 2026-W46, or `last` for the newest that is over")


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
