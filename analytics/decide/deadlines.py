"""Until when to act: the end of a working day of the site. Recommendations, and the asks made of them, have no other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from fallow.clock import from_ms, to_ms
from fallow.config import Config
from fallow.errors import ConfigError

_WEEK_DAYS = 7
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def quiet_days(config: Config) -> frozenset[int]:
    """report.quiet_days as weekdays, Monday 0; raises ConfigError."""
    days = [day.lower() for day in config.texts("report.quiet_days")]
    if wrong := [day for day in days if day not in _DAYS]:
        raise ConfigError(f"report.quiet_days: '{wrong[0]}' is not a weekday", f"write some of {', '.join(_DAYS)}")
    return frozenset(map(_DAYS.index, days))


@dataclass(frozen=True)
class Deadlines:
    """In how many working days each thing is to be done: idle GPUs, a change of the work itself, cards that leave the site.

    `days_off` are weekdays, Monday 0; where all seven are days off, every day counts.
    """

    release_days: int
    change_days: int
    return_days: int
    days_off: Collection[int]
    zone: tzinfo

    @classmethod
    def of(cls, config: Config, zone: tzinfo) -> Deadlines:
        """From the settings of nudges, with report.quiet_days as days off; raises ConfigError."""
        return cls(
            config.integer("report.nudge_deadline"),
            config.integer("report.nudge_deadline_change"),
            config.integer("report.nudge_deadline_return"),
            quiet_days(config),
            zone,
        )

    def end_ms(self, since_ms: int, working_days: int) -> int:
        """The end of the day, exclusive, that is `days` working days ahead."""
        day, left = from_ms(since_ms).astimezone(self.zone).date(), working_days
        while left:
            day += timedelta(days=1)
            left -= len(set(self.days_off)) >= _WEEK_DAYS or day.weekday() not in self.days_off
        return end_of_day_ms(day, self.zone)


def end_of_day_ms(day: date, zone: tzinfo) -> int:
    """The end of a day of the zone, exclusive."""
    return to_ms(datetime.combine(day + timedelta(days=1), time.min, zone))
