"""ISO weeks and ranges of days in a time zone; both ends of a range are inclusive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta, tzinfo

from fallow.clock import LAST_YEAR, Window, from_ms, iso_monday, start_of_day_ms
from fallow.errors import UsageError

ALL = "all"
SPANS = ("24h", "3d", "7d", "28d", ALL)
"""The usual windows up to the end of the data, as `--since` takes them; `all` is all that the lake has."""


@dataclass(frozen=True)
class Week:
    """Monday 00:00 to Monday 00:00 in a time zone: 168 hours, or 167 or 169 if clocks change."""

    monday: date
    zone: tzinfo

    @property
    def label(self) -> str:
        """Return the label: `2026-W46`."""
        year, number, _ = self.monday.isocalendar()
        return f"{year}-W{number:02}"

    @property
    def since_ms(self) -> int:
        """Return the first moment."""
        return start_of_day_ms(self.monday, self.zone)

    @property
    def until_ms(self) -> int:
        """Return the first moment after the week."""
        return start_of_day_ms(self.monday + timedelta(days=7), self.zone)

    @property
    def window(self) -> Window:
        return Window(self.since_ms, self.until_ms)

    def before(self, weeks: int = 1) -> Week:
        """Return the week this many weeks earlier."""
        return Week(self.monday - timedelta(days=7 * weeks), self.zone)


def week_of(moment_ms: int, zone: tzinfo) -> Week:
    day = from_ms(moment_ms).astimezone(zone).date()
    return Week(day - timedelta(days=day.weekday()), zone)


def parse_week(text: str, zone: tzinfo, now_ms: int) -> Week:
    """Return the week that `2026-W46` names; `last` is the newest week that is over at `now_ms`. Raises UsageError."""
    if text == "last":
        return week_of(now_ms, zone).before()
    try:
        monday = iso_monday(text)
        if monday is not None and 1970 < monday.year < LAST_YEAR:
            return Week(monday, zone)
    except ValueError:
        pass
    raise UsageError(f"'{text}' is not a week", "write it as 2026-W46, or `last` for the newest that is over")


def days_between(first: str, last: str) -> tuple[date | None, date | None]:
    """Return two days as texts, None for an empty one. Raises UsageError."""
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
    """Return the window from the beginning of one day to the end of another; None is open."""
    after = None if last is None else last + timedelta(days=1)
    starts = (None if day is None else start_of_day_ms(day, zone) for day in (first, after))
    return Window(*starts)
