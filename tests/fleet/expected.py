"""Which rows a host's agent has to have written, from what was done to it: never from what it says itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

LAG_MS = 250
"""How long after its end an interval is closed."""

_RING_MS = 10_000
"""What the drivers' rings hold."""

_PUT_BACK_MS = 300_000
"""A clock that goes back by less repeats no interval (docs/storage.md)."""


@dataclass
class ExpectedRows:
    """The intervals of one host by their start: how often each was at least and at most observed.

    An interval is observed once, unless the clock went back over it. One in which the agent began or was killed may be
    missing.
    """

    interval_ms: int
    at_least: Counter[int] = field(default_factory=Counter)
    at_most: Counter[int] = field(default_factory=Counter)
    next_ms: int | None = None
    """Start of the interval under way; None while no agent runs."""
    last_ms: int | None = None
    """Start of the newest interval that was closed."""
    _put_back: bool = False

    def started(self, now_ms: int) -> None:
        """An agent begins with the next whole interval; it may take up where the run before it ended.

        That is the current interval, or the one before it if it ended so recently that the rings still hold it.
        """
        self.next_ms, self._put_back = self._first(now_ms), False
        under_way_ms = self.next_ms - self.interval_ms
        just_over = now_ms - under_way_ms <= _RING_MS
        for start_ms in (under_way_ms, *([under_way_ms - self.interval_ms] if just_over else [])):
            if self.last_ms is None or self.last_ms < start_ms:
                self.at_most[start_ms] = max(1, self.at_most[start_ms])

    def ended(self) -> None:
        self.next_ms = None

    def stepped(self, by_ms: int) -> None:
        """The wall clock was set; less than an interval back goes unnoticed."""
        self._put_back = self._put_back or by_ms < -self.interval_ms

    def woke(self, now_ms: int, *, killed: bool = False) -> None:
        """Time has come to `now_ms`: an interval that is over is closed, and of several the last one.

        Killed at that moment, an agent may or may not have closed it.
        """
        if self.next_ms is None:
            return
        if self._put_back:
            self._put_back = False
            if now_ms < self.next_ms:
                self.next_ms = self._first(now_ms)
                return
        over = (now_ms - LAG_MS - self.next_ms) // self.interval_ms
        if over < 1:
            return
        closed_ms = self.next_ms + (over - 1) * self.interval_ms
        self.at_most[closed_ms] += 1
        if not killed:
            self.at_least[closed_ms] += 1
        self.last_ms, self.next_ms = closed_ms, closed_ms + self.interval_ms

    def _first(self, now_ms: int) -> int:
        start_ms = now_ms - now_ms % self.interval_ms + self.interval_ms
        if self.last_ms is not None and start_ms <= self.last_ms < start_ms + _PUT_BACK_MS:
            return self.last_ms + self.interval_ms
        return start_ms

    def wrong(self, seen: Counter[int], since_ms: int, until_ms: int | None) -> dict[str, list[int]]:
        """Starts of intervals in a span that are missing, doubled (more than were observed) or of no agent that ran."""
        times = {
            each
            for each in self.at_most.keys() | seen.keys()
            if since_ms <= each and (until_ms is None or each < until_ms)
        }
        found = {
            "missing": [each for each in times if seen[each] < self.at_least[each]],
            "doubled": [each for each in times if seen[each] > self.at_most[each] > 0],
            "foreign": [each for each in times if seen[each] and not self.at_most[each]],
        }
        return {what: sorted(each) for what, each in found.items() if each}
