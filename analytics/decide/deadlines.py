"""Deadlines, as working days of the site. Recommendations and nudges use the same deadlines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo

from fallow.clock import from_ms
from fallow.config import Config
from fallow.errors import ConfigError

_WEEK_DAYS = 7
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def quiet_days(config: Config) -> frozenset[int]:
    """Return report.quiet_days as weekdays, Monday 0. Raises ConfigError."""
    days = [day.lower() for day in config.texts("report.quiet_days")]
    if wrong := [day for day in days if day not in _DAYS]:
        raise ConfigError(f"report.quiet_days: '{wrong[0]}' is not a weekday", f"write some of {', '.join(_DAYS)}")
    return frozenset(map(_DAYS.index, days))


@dataclass(frozen=True)
class Deadlines:
    """Working days until each deadline: for idle GPUs, for changes of workloads, and for cards that leave the site.

    `days_off` are weekdays, Monday 0. If all seven are days off, every day counts.
    """

    release_days: int
    change_days: int
    return_days: int
    days_off: Collection[int]
    zone: tzinfo

    @classmethod
    def of(cls, config: Config, zone: tzinfo) -> Deadlines:
        """Read the settings of nudges, with report.quiet_days as days off. Raises ConfigError."""
        return cls(
            config.integer("report.nudge_deadline"),
            config.integer("report.nudge_deadline_change"),
            config.integer("report.nudge_deadline_return"),
            quiet_days(config),
            zone,
        )

    def last_day(self, since_ms: int, working_days: int) -> date:
        """Return the deadline: the day after this many working days."""
        day, left = from_ms(since_ms).astimezone(self.zone).date(), working_days
        while left:
            day += timedelta(days=1)
            left -= len(set(self.days_off)) >= _WEEK_DAYS or day.weekday() not in self.days_off
        return day
