"""When an interval ends, what is asked in it, and how the loop that waits for it is woken."""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.clock import DAY_MS, HOUR_MS, format_duration

if TYPE_CHECKING:
    from agent.nvml.worker_protocol import Entries
    from agent.settings import AgentSettings


@dataclass(frozen=True)
class Due:
    """What to ask beside the row itself."""

    list_processes: bool
    devices: Entries
    errors: bool
    kernel: bool
    """Whether to look for GPUs that the kernel has and the driver's library, loaded before, does not list."""


_KERNEL_MS = 30_000  # a GPU that is added is seen within a minute


class LanePlan:
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
        return Due(
            list_processes=start_ms % process_ms < end_ms - start_ms,
            devices="all" if new_day else "changed" if new_hour else "none",
            errors=start_ms // slow_ms != before_ms // slow_ms,
            kernel=start_ms // _KERNEL_MS != before_ms // _KERNEL_MS,
        )


_FACTORS = (1, 6, 30)  # by pressure: 10 s rows become rows of one minute, then of five


class Thinning:
    """How long the next interval is."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._factor = 1

    def end_of(self, start_ms: int) -> int:
        """The end of the interval that starts there, on the grid of the present length."""
        length_ms = self._interval_ms * self._factor
        return start_ms // length_ms * length_ms + length_ms

    def adapt(self, pressure: int) -> list[tuple[str, str]]:
        """Follows the spool's pressure (0 to 2); returns kind and detail of the event where that changes anything."""
        factor = _FACTORS[pressure]
        if factor == self._factor:
            return []
        before, self._factor = self._factor, factor
        length = format_duration(self._interval_ms * factor)
        if factor > before:
            return [("sampling_thinned", f"the spool has little room left: one row in {length}")]
        return [("sampling_restored", f"the spool has room again: one row in {length}")]


class Bell:
    """Rung by anyone, heard by the one loop that waits."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def ring(self) -> None:
        """Ends the wait that is under way, or the next one."""
        with contextlib.suppress(OSError):  # closed already, or rung very often
            os.eventfd_write(self._fd, 1)

    def wait(self, seconds: float) -> bool:
        """Waits so long at most; whether the bell was rung."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        return True

    def close(self) -> None:
        os.close(self._fd)
