"""When the next request may go out: one pace for all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RequestPace:
    """At most `rate` requests a second; what the server asks to wait, all wait."""

    def __init__(self, rate: float, now_s: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._apart_s, self._now_s, self._sleep = 1 / rate, now_s, sleep
        self._next_s = now_s()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Returns when it is this caller's turn."""
        with self._lock:
            now_s = self._now_s()
            turn_s = max(now_s, self._next_s)
            self._next_s = turn_s + self._apart_s
        if turn_s > now_s:
            self._sleep(turn_s - now_s)

    def hold(self, pause_s: float) -> None:
        """Nobody's turn comes before that many seconds from now."""
        with self._lock:
            self._next_s = max(self._next_s, self._now_s() + pause_s)
