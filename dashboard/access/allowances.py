"""How many refusals the audit log gets."""

from __future__ import annotations

import threading

from fallow.clock import MINUTE_MS, Clock


class RefusalRation:
    """Anybody can be refused, as often as they like: without an end to it they would fill the disk, and then nobody could act."""

    def __init__(self, most_per_minute: int, clock: Clock) -> None:
        self._most, self._clock = most_per_minute, clock
        self._lock = threading.Lock()
        self._minute, self._taken, self._left_out = 0, 0, 0

    def take(self) -> int | None:
        """How many were left out since the last one that was not; None: this one is left out too."""
        minute = self._clock.now_ms() // MINUTE_MS
        with self._lock:
            if minute != self._minute:
                self._minute, self._taken = minute, 0
            if self._taken >= self._most:
                self._left_out += 1
                return None
            self._taken += 1
            missing, self._left_out = self._left_out, 0
            return missing
