"""When a worker that has ended is replaced: at once as a rule, without a GPU that crashes it, and never in a hot loop.

And what has to happen before a GPU whose call blocked or ended a worker counts as healthy again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

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


@dataclass
class _Trial:
    """What is held against one GPU."""

    calls: dict[str, str]
    """What each call did that is on trial."""
    health: str = "ok"
    """The GPU's health by the newest event."""
    returned: set[str] = field(default_factory=set)
    intervals: int = 0
    """Answered since the newest call was held against it."""


@dataclass(frozen=True)
class HealthChange:
    """The health of a GPU that is read again, where events said another one before, and why: what follows its name."""

    target: str
    health: str
    why: str


class Trials:
    """Driver calls that blocked or ended a worker: their GPU is healthy again once each of them has returned.

    A GPU goes by its UUID, or by `#index` before that is known; the driver as a whole by an empty text.
    """

    def __init__(self) -> None:
        self._trials: dict[str, _Trial] = {}

    def hold(self, target: str, call: str, did: str, health: str | None = None) -> bool:
        """Holds a call against a GPU that now has this health, None for the one it had; whether that is another one."""
        trial = self._trials.setdefault(target, _Trial({}))
        trial.calls[call] = did
        trial.returned.discard(call)
        trial.intervals = 0
        before, trial.health = trial.health, health or trial.health
        return trial.health != before

    def open_calls(self, avoided: Collection[str]) -> list[tuple[str, str]]:
        """GPU and call of those that have not returned yet, without the GPUs that are not read."""
        return [
            (target, call)
            for target, trial in self._trials.items()
            if target not in avoided
            for call in trial.calls
            if call not in trial.returned
        ]

    def returned(self, target: str, call: str) -> None:
        """Takes note that a call has returned in the worker of now."""
        if target in self._trials:
            self._trials[target].returned.add(call)

    def settle(self, avoided: Collection[str]) -> list[HealthChange]:
        """Counts an answered interval of the GPUs that are read; those whose health is another one now.

        A GPU is degraded while a call is on trial. One that was not needed for long enough is no longer held against it.
        """
        found = []
        for target, trial in [each for each in self._trials.items() if each[0] not in avoided]:
            trial.intervals += 1
            left = [call for call in trial.calls if call not in trial.returned]
            over = not left or trial.intervals >= _CALM
            health = "ok" if over else "degraded"
            if health != trial.health:
                found.append(HealthChange(target, health, _reason(trial, left)))
            trial.health = health
            if over:
                del self._trials[target]
        return found


def _reason(trial: _Trial, left: Collection[str]) -> str:
    """Why a health is another one now, behind a word for the GPU or the driver; `left` are the calls still on trial."""
    named = [call for call in trial.calls if not left or call in left]
    calls = " and ".join(f"{call}, which {trial.calls[call]}," for call in named)
    have = "has" if len(named) == 1 else "have"
    if not left:
        return f"answers again: {calls} {have} returned"
    if trial.intervals < _CALM:
        return f"is read again, but {calls} {have} not been called since"
    return f"has answered for {trial.intervals} intervals; {calls} {have} not been needed"
