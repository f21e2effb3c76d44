"""Limits per minute: on the requests under one name, and on the refusals in the audit log."""

from __future__ import annotations

import threading
from collections import OrderedDict

from fallow.clock import MINUTE_MS, Clock

_MOST_KNOWN = 1000


class Allowance:
    """At most `most` uses of one name per minute. Forgets the least recently used names."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._used: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def take(self, name: str) -> bool:
        """Count one use of the name; return whether the name is still within this minute's limit."""
        minute = self._clock.now_ms() // MINUTE_MS
        with self._lock:
            since, used = self._used.pop(name, (minute, 0))
            used = used + 1 if since == minute else 1
            self._used[name] = (minute, used)
            while len(self._used) > _MOST_KNOWN:
                self._used.popitem(last=False)
        return used <= self._most


class RefusalRation:
    """Limits the refusals in the audit log: without a limit, strangers could fill the disk, and no reader could act."""

    def __init__(self, most_per_minute: int, clock: Clock) -> None:
        self._allowance = Allowance(most_per_minute, clock)
        self._lock = threading.Lock()
        self._left_out = 0

    def take(self) -> int | None:
        """Return the number of refusals left out since the last written one; None where this one is left out too."""
        has_room = self._allowance.take("")
        with self._lock:
            if not has_room:
                self._left_out += 1
                return None
            missing, self._left_out = self._left_out, 0
            return missing
