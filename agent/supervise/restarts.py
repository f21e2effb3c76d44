"""When a worker that has ended is replaced: at once as a rule, without a GPU that crashes it, and never in a hot loop."""

from __future__ import annotations

_CRASHES = 2  # in a row on one GPU: once may be chance
_CALM = 60  # whole intervals without a crash after which nothing is held against a GPU any more
_FIRST_REST = 6  # intervals for which such a GPU is left alone; doubled with each further crash
_LONGEST_REST = 360

BURST = 10
"""Workers that may be started one after the other in place of ones that ended."""
EVERY_S = 5.0
"""After that one in so many seconds: a start takes 0.05 to 0.1 s of CPU time, so that this is 2 % of a core at most."""


class RestartBudget:
    """How many workers may still be started in place of ones that ended by nobody's fault."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Takes one start, by a clock that never steps; False where there is none for now."""
        passed_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._left, self._at_s = min(BURST, self._left + passed_s / EVERY_S), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Crashes:
    """Counts ends of workers by the GPU whose call was under way, so that no crash repeats at every interval."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._resting: dict[str, int] = {}
        self._rest: dict[str, int] = {}
        self._calm = 0

    def count(self, target: str) -> bool:
        """Counts one crash in a call of this GPU; whether it is to be left alone now."""
        self._calm = 0
        self._counts[target] = self._counts.get(target, 0) + 1
        if self._counts[target] >= _CRASHES:
            rest = self._rest.get(target, _FIRST_REST)
            self._resting[target] = rest
            self._rest[target] = min(2 * rest, _LONGEST_REST)
            self._counts[target] = _CRASHES - 1  # after the rest, a single crash suffices
            return True
        return False

    def survived(self) -> None:
        """A whole interval was answered; after many of them all is forgotten."""
        self._calm += 1
        if self._calm == _CALM:
            self._counts.clear()
            self._rest = {target: rest for target, rest in self._rest.items() if target in self._resting}

    def avoided(self) -> frozenset[str]:
        return frozenset(self._resting)

    def due(self) -> frozenset[str]:
        """Counts one interval; the GPUs whose rest is over."""
        over = frozenset(target for target, left in self._resting.items() if left <= 1)
        self._resting = {target: left - 1 for target, left in self._resting.items() if left > 1}
        return over
