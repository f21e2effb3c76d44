"""Hours and days in which nobody is told anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.clock import from_ms
from fallow.errors import ConfigError

if TYPE_CHECKING:
    from datetime import tzinfo

    from fallow.config import Config

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*-\s*([01]\d|2[0-3]|24):([0-5]\d)")


@dataclass(frozen=True)
class Quiet:
    """Minutes of the day from which and until which it is quiet (past midnight where they fall), and weekdays, Monday 0."""

    from_minute: int
    until_minute: int
    days: frozenset[int]
    zone: tzinfo

    @classmethod
    def of(cls, config: Config, zone: tzinfo) -> Quiet:
        """From report.quiet_hours and report.quiet_days; raises ConfigError."""
        days = [day.lower() for day in config.texts("report.quiet_days")]
        if wrong := [day for day in days if day not in _DAYS]:
            raise ConfigError(f"report.quiet_days: '{wrong[0]}' is no day", f"write some of {', '.join(_DAYS)}")
        from_minute, until_minute = _minutes(config.text("report.quiet_hours").strip())
        return cls(from_minute, until_minute, frozenset(_DAYS.index(day) for day in days), zone)

    def holds(self, now_ms: int) -> bool:
        """Whether it is quiet at that moment, by the clocks of the zone."""
        local = from_ms(now_ms).astimezone(self.zone)
        minute = 60 * local.hour + local.minute
        if self.from_minute <= self.until_minute:
            return local.weekday() in self.days or self.from_minute <= minute < self.until_minute
        return local.weekday() in self.days or minute >= self.from_minute or minute < self.until_minute


def _minutes(text: str) -> tuple[int, int]:
    if not text:
        return 0, 0
    match = _HOURS.fullmatch(text)
    if match is None or (match[3] == "24" and match[4] != "00"):
        raise ConfigError(f"report.quiet_hours '{text}' is not a span of hours", "write it as 20:00-07:00")
    return 60 * int(match[1]) + int(match[2]), 60 * int(match[3]) + int(match[4])
