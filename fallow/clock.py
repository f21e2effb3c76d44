"""Times and durations: parsing, formatting, and the interval grid.

All times inside fallow are integer milliseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Protocol

from fallow.errors import UsageError

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS

_UNIT_MS = {
    "ms": 1,
    "s": SECOND_MS,
    "sec": SECOND_MS,
    "m": MINUTE_MS,
    "min": MINUTE_MS,
    "h": HOUR_MS,
    "d": DAY_MS,
    "w": WEEK_MS,
}
_LONGEST_MS = 253_402_300_800_000
"""From the epoch to the end of the year 9999, the last year of a datetime."""
LAST_YEAR = 2199
"""Last year of a requested window; dates long before such a window can still be written."""
_LAST_MS = 7_258_118_400_000
"""End of LAST_YEAR."""
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d|w)\s*")
_WHOLE_DAYS = re.compile(r"\s*(?:\d+\s*[dw]\s*)+")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d)?)(\.\d+)?([Zz]|[+-]\d\d:?\d\d)?")
_WEEK = re.compile(r"(\d{4})-W(\d{1,2})")
_WHEN_HINT = (
    "write a date (2026-11-20), a week (2026-W47), a length before the end of the data (7d) or RFC 3339"
    " (2026-11-20T06:00Z)"
)


class Clock(Protocol):
    """The clocks that the agent reads; tests pass their own."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


@dataclass(frozen=True)
class Window:
    """A half-open interval [since_ms, until_ms) in UTC milliseconds; None is an open end."""

    since_ms: int | None = None
    until_ms: int | None = None

    def rounded_out(self, grid_ms: int) -> Window:
        """Return the smallest window on the grid that contains this window."""
        return Window(
            None if self.since_ms is None else floor_ms(self.since_ms, grid_ms),
            None if self.until_ms is None else -floor_ms(-self.until_ms, grid_ms),
        )


def boot_time_s() -> float:
    """Return the seconds since boot, by a clock that is never set and that runs on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def seconds_left(deadline_s: float) -> float:
    """Return the seconds until a deadline of the monotonic clock; raises TimeoutError once it is over."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `1h30m` or `7d`; raises UsageError for other text and for zero."""
    total, at = 0.0, 0
    while match := _DURATION.match(text, at):
        total += float(match[1]) * _UNIT_MS[match[2]]
        at = match.end()
    if at != len(text) or not 1 <= total < _LONGEST_MS:
        raise UsageError(f"'{text}' is not a duration", "write a number and a unit: 10s, 5min, 2h, 7d")
    return round(total)


def format_duration(duration_ms: int) -> str:
    """Return the exact duration in the largest units, such as `1h 30min`; the inverse of parse_duration_ms."""
    if duration_ms == 0:
        return "0s"
    parts, rest = [], duration_ms
    for unit, size in (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", SECOND_MS), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


@dataclass(frozen=True)
class AskedWindow:
    """A window as written in flags or settings, and the time zone of its days and weeks."""

    since: str | None = None
    until: str | None = None
    zone: tzinfo = timezone.utc

    @property
    def counts_back(self) -> bool:
        """True if the window counts back from the end of the data."""
        return _is_span(self.until) or (self.until is None and _is_span(self.since))

    def before(self, end_ms: int) -> Window:
        """Return the window, with lengths counted back from `end_ms`; raises UsageError."""
        return parse_window(self.since, self.until, end_ms, self.zone)


def parse_window(
    since: str | None, until: str | None, end_ms: int | None = None, zone: tzinfo = timezone.utc
) -> Window:
    """Return the window that --since and --until name; raises UsageError.

    Days and weeks are those of the zone. A day or week as --until is included. A length such as `7d` as --since counts
    back from --until, or from `end_ms` if --until is open. A day in which the clocks change has an hour more or less.
    Without `end_ms`, lengths count back from now, rounded down to the hour (lengths below a day: to the minute).
    """
    anchor_ms = SystemClock().now_ms() if end_ms is None else end_ms
    until_ms = None if until is None else _moment_ms(until, end=True, anchor_ms=anchor_ms, zone=zone)
    back_from_ms = anchor_ms if until_ms is None else until_ms
    since_ms = None if since is None else _moment_ms(since, end=False, anchor_ms=back_from_ms, zone=zone)
    if end_ms is None and until_ms is None and since_ms is not None and _is_span(since):
        since_ms = floor_ms(since_ms, HOUR_MS if anchor_ms - since_ms >= DAY_MS else MINUTE_MS)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise UsageError(f"the start {since} is not before the end {until}", "swap them or widen the window")
    return Window(since_ms, until_ms)


def _span_start_ms(end_ms: int, span: str, zone: tzinfo) -> int:
    """Return the moment `span` before `end_ms`. Days and weeks count days of the zone; other units are exact."""
    span_ms = parse_duration_ms(span)
    if not _WHOLE_DAYS.fullmatch(span) or span_ms > end_ms:
        return end_ms - span_ms
    local = from_ms(end_ms).astimezone(zone)
    # on the clock of the zone, where a day with a clock change has 23 or 25 hours
    earlier = local.replace(tzinfo=None) - timedelta(milliseconds=span_ms)
    return to_ms(earlier.replace(tzinfo=zone, fold=local.fold))


def _is_span(text: str | None) -> bool:
    return text is not None and _DURATION.match(text) is not None


def _moment_ms(text: str, *, end: bool, anchor_ms: int, zone: tzinfo) -> int:
    moment_ms = _read_moment_ms(text, end=end, anchor_ms=anchor_ms, zone=zone)
    if not 0 <= moment_ms < _LAST_MS:
        raise UsageError(f"'{text}' is not in the years 1970 to {LAST_YEAR}", _WHEN_HINT)
    return moment_ms


def _read_moment_ms(text: str, *, end: bool, anchor_ms: int, zone: tzinfo) -> int:
    try:
        if _DAY.fullmatch(text):
            return start_of_day_ms(date.fromisoformat(text) + timedelta(days=int(end)), zone)
        if (monday := iso_monday(text)) is not None:
            return start_of_day_ms(monday + timedelta(days=7 * int(end)), zone)
        if _DURATION.match(text):
            return _span_start_ms(anchor_ms, text, zone)
        moment = read_rfc3339(text)
    except OverflowError:
        return _LAST_MS  # the day after the last date
    except ValueError as error:
        raise UsageError(f"'{text}' is not a time", _WHEN_HINT) from error
    if moment.tzinfo is None:
        raise UsageError(f"'{text}' has no time zone", "add Z for UTC or an offset such as +01:00")
    return to_ms(moment)


def iso_monday(text: str) -> date | None:
    """Return the Monday of a week such as `2026-W47`, None for other text; raises ValueError if it does not exist."""
    week = _WEEK.fullmatch(text)
    return None if week is None else date.fromisocalendar(int(week[1]), int(week[2]), 1)


def start_of_day_ms(day: date, zone: tzinfo) -> int:
    """Return the first moment of a day in a zone."""
    return to_ms(datetime.combine(day, datetime.min.time(), zone))


def read_rfc3339(text: str) -> datetime:
    """Return what `datetime.fromisoformat` returns; in Python 3.10 also for Z and for fractions of any length."""
    if sys.version_info < (3, 11) and (parts := _RFC_3339.fullmatch(text)):
        seconds, fraction, offset = parts.groups()
        zone = "+00:00" if offset in ("Z", "z") else offset or ""
        text = f"{seconds}{(fraction or '')[:7]:0<7}{zone}" if fraction else f"{seconds}{zone}"
    return datetime.fromisoformat(text)


def to_ms(moment: datetime) -> int:
    """Return the exact milliseconds since the epoch of an aware datetime."""
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def from_ms(moment_ms: int) -> datetime:
    """Return the UTC datetime of milliseconds since the epoch."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=moment_ms)


def format_ms(moment_ms: int) -> str:
    """Return RFC 3339 in UTC with `Z`, with milliseconds only if they are not 0."""
    # isoformat, unlike strftime, writes years below 1000 with four digits
    shown = from_ms(moment_ms).replace(tzinfo=None)
    return shown.isoformat(timespec="milliseconds" if moment_ms % 1000 else "seconds") + "Z"


def utc_day(moment_ms: int) -> str:
    """Return the UTC date `YYYY-MM-DD` of the moment."""
    return from_ms(moment_ms).date().isoformat()


def parse_day_ms(day: str) -> int:
    """Return the start of a UTC date `YYYY-MM-DD`."""
    return start_of_day_ms(date.fromisoformat(day), timezone.utc)


def floor_ms(moment_ms: int, interval_ms: int) -> int:
    """Return the start of the grid interval that contains the moment; the grid starts at the epoch."""
    return moment_ms - moment_ms % interval_ms
