"""The collection plan: which of the slower lanes are due in an interval.

Utilization is drained between intervals and every row is read at its end; process lists, error counters and the inventory
have slower lanes of their own, because they cost more and change less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.clock import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from agent.settings import AgentSettings


@dataclass(frozen=True)
class Due:
    """What to ask beside the row itself; `devices` and `errors` are all, changed or none."""

    list_processes: bool
    devices: str
    errors: str


class Plan:
    """Lanes on the wall clock's grid, so that the hosts of a fleet write comparable rows."""

    def __init__(self, settings: AgentSettings, now_ms: int) -> None:
        self._settings = settings
        self._seen_ms = now_ms

    def due(self, start_ms: int, end_ms: int) -> Due:
        """The lanes due in the interval; to be asked once for each.

        The first interval of an hour looks for changed inventory; that of a day writes all entries, so that no day's
        partition lacks them. A clock that is put back begins another hour or day as well: looking once too often costs
        little, and waiting for the old time to come again might last for days.
        """
        before_ms, self._seen_ms = self._seen_ms, start_ms
        new_day = start_ms // DAY_MS != before_ms // DAY_MS
        new_hour = start_ms // HOUR_MS != before_ms // HOUR_MS
        slow_ms, process_ms = self._settings.slow_interval_ms, self._settings.process_interval_ms
        slow = start_ms // slow_ms != before_ms // slow_ms
        return Due(
            list_processes=start_ms % process_ms < end_ms - start_ms,
            devices="all" if new_day else "changed" if new_hour else "none",
            errors="all" if new_day else "changed" if slow else "none",
        )
