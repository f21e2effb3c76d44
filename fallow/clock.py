"""Times and durations: reading them as people write them, and the interval grid.

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
"""From the epoch to the end of the year 9999, the last that a datetime can hold."""
LAST_YEAR = 2199
"""Of what may be asked for: several times as long before any such window is still a date that can be written."""
_LAST_MS = 7_258_118_400_000
"""Its end."""
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d|w)\s*")
_WHOLE_DAYS = re.compile(r"\s*(?:\d+\s*[dw]\s*)+")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d)?)(\.\d+)?([Zz]|[+-]\d\d:?\d\d)?")
_WEEK = re.compile(r"(\d{4})-W(\d{1,2})")
_WHEN_HINT = "write a day (2026-11-20), a week (2026-W47), a span back from the end of the data (7d) or RFC 3339 (2026-11-20T06:00Z)"


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
    """A half-open span [since_ms, until_ms) of UTC milliseconds; either end may be open."""

    since_ms: int | None = None
    until_ms: int | None = None

    def rounded_out(self, grid_ms: int) -> Window:
        """The least window on the grid that holds this one."""
        return Window(
            None if self.since_ms is None else floor_ms(self.since_ms, grid_ms),
            None if self.until_ms is None else -floor_ms(-self.until_ms, grid_ms),
        )


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration such as `10s`, `1h30m`, `7d`; raises UsageError on anything else, zero included."""
    total, at = 0.0, 0
    while match := _DURATION.match(text, at):
        total += float(match[1]) * _UNIT_MS[match[2]]
        at = match.end()
    if at != len(text) or not 1 <= total < _LONGEST_MS:
        raise UsageError(f"'{text}' is not a duration", "write a number and a unit: 10s, 5min, 2h, 7d")
    return round(total)


def format_duration(duration_ms: int) -> str:
    """The duration in the largest units that lose nothing, such as `1h 30min`; the inverse of parse_duration_ms."""
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
    """A window as somebody wrote it, and the time zone whose days a span such as `7d` counts."""

    since: str | None = None
    until: str | None = None
    zone: tzinfo = timezone.utc

    @property
    def counts_back(self) -> bool:
        """Whether it counts back from a moment that it does not name: the end of the data."""
        return _is_span(self.until) or (self.until is None and _is_span(self.since))

    def before(self, end_ms: int) -> Window:
        """The window, its spans counted back from that moment; raises UsageError."""
        return parse_window(self.since, self.until, end_ms, self.zone)


def parse_window(
    since: str | None, until: str | None, end_ms: int | None = None, zone: tzinfo = timezone.utc
) -> Window:
    """The window that --since and --until name.

    A day or week given as --until ends it inclusively (its last moment counts); a span such as `7d` as --since counts back
    from --until, or, where that is open, from `end_ms`. Whole days of it are days of the zone: where the clocks change
    within them they have an hour more or less. Without `end_ms` spans count back from now, down to the last whole hour
    (below a day: the last whole minute). Raises UsageError.
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
    """The moment so long before another: a span in days or weeks counts days of the zone, any other is exact."""
    span_ms = parse_duration_ms(span)
    if not _WHOLE_DAYS.fullmatch(span) or span_ms > end_ms:
        return end_ms - span_ms
    local = from_ms(end_ms).astimezone(zone)
    # on the clock of the zone, where a day has 23 or 25 hours when that is put forward or back
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
            return to_ms(datetime.fromisoformat(text).replace(tzinfo=timezone.utc)) + (DAY_MS if end else 0)
        if week := _WEEK.fullmatch(text):
            monday = datetime.combine(
                date.fromisocalendar(int(week[1]), int(week[2]), 1), datetime.min.time(), timezone.utc
            )
            return to_ms(monday) + (WEEK_MS if end else 0)
        if _DURATION.match(text):
            return _span_start_ms(anchor_ms, text, zone)
        moment = read_rfc3339(text)
    except ValueError as error:
        raise UsageError(f"'{text}' is not a time", _WHEN_HINT) from error
    if moment.tzinfo is None:
        raise UsageError(f"'{text}' has no time zone", "add Z for UTC or an offset such as +01:00")
    return to_ms(moment)


def read_rfc3339(text: str) -> datetime:
    """Like `datetime.fromisoformat`, which in Python 3.10 knows neither Z nor fractions of other than 3 or 6 digits."""
    if sys.version_info < (3, 11) and (parts := _RFC_3339.fullmatch(text)):
        seconds, fraction, offset = parts.groups()
        zone = "+00:00" if offset in ("Z", "z") else offset or ""
        text = f"{seconds}{(fraction or '')[:7]:0<7}{zone}" if fraction else f"{seconds}{zone}"
    return datetime.fromisoformat(text)


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch of an aware datetime, exactly (no float in between)."""
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def from_ms(moment_ms: int) -> datetime:
    """The UTC datetime of milliseconds since the epoch."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=moment_ms)


def format_ms(moment_ms: int) -> str:
    """RFC 3339 in UTC with `Z`, milliseconds only where there are some."""
    # isoformat, unlike strftime, writes years below 1000 with four digits
    shown = from_ms(moment_ms).replace(tzinfo=None)
    return shown.isoformat(timespec="milliseconds" if moment_ms % 1000 else "seconds") + "Z"


def utc_day(moment_ms: int) -> str:
    """The UTC date `YYYY-MM-DD` on which the moment lies."""
    return from_ms(moment_ms).date().isoformat()


def parse_day_ms(day: str) -> int:
    """The start of a UTC date `YYYY-MM-DD`."""
    return to_ms(datetime.fromisoformat(day).replace(tzinfo=timezone.utc))


def floor_ms(moment_ms: int, interval_ms: int) -> int:
    """The start of the grid interval that holds the moment; the grid starts at the epoch."""
    return moment_ms - moment_ms % interval_ms
