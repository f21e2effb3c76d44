"""Until when an ask is to be answered: the end of a working day of the site."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo

from fallow.clock import from_ms, to_ms

_WEEK_DAYS = 7


@dataclass(frozen=True)
class Deadlines:
    """In how many working days GPUs are to be answered for, and in how many a change of the work itself.

    `days_off` are weekdays, Monday 0; where all seven are days off, every day counts.
    """

    release_days: int
    change_days: int
    days_off: Collection[int]
    zone: tzinfo

    def release_ms(self, now_ms: int) -> int:
        """The end of the day, exclusive, by which GPUs are to be given back or spoken for."""
        return self._end_ms(now_ms, self.release_days)

    def change_ms(self, now_ms: int) -> int:
        """The same for work that is to be changed."""
        return self._end_ms(now_ms, self.change_days)

    def _end_ms(self, now_ms: int, working_days: int) -> int:
        day, left = from_ms(now_ms).astimezone(self.zone).date(), working_days
        while left:
            day += timedelta(days=1)
            left -= len(set(self.days_off)) >= _WEEK_DAYS or day.weekday() not in self.days_off
        return to_ms(datetime.combine(day + timedelta(days=1), time.min, self.zone))
