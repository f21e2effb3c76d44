"""What is left alone for a while: workers that block in the driver, and GPUs whose calls crash its library."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.supervise.worker_client import WorkerClient

_CRASHES = 2  # in a row on one GPU: once may be chance
_CALM = 60  # whole intervals without a crash after which nothing is held against a GPU any more
_FIRST_REST = 6  # intervals for which such a GPU is left alone; doubled with each further crash
_LONGEST_REST = 360
_LONGEST_PAUSE = 6
_SHORTEST_WAIT_S = 0.05  # a signal needs a moment to be delivered


class Stuck:
    """Workers that were given up, each with the GPUs (UUID or `#index`) that it blocks on, "" for the driver as a whole.

    They are never killed: SIGKILL in the middle of a driver call has frozen GPUs.
    """

    def __init__(self) -> None:
        self._workers: dict[WorkerClient, tuple[str, ...]] = {}

    def add(self, worker: WorkerClient, blocked: tuple[str, ...]) -> None:
        """Leaves a worker alone."""
        self._workers[worker] = blocked

    @property
    def targets(self) -> frozenset[str]:
        """Every GPU that some worker blocks on."""
        return self._blocked - {""}

    @property
    def driver_blocks(self) -> bool:
        """Whether some worker blocks in a call about the driver as a whole, such as loading it."""
        return "" in self._blocked

    def freed(self, patience_s: float) -> frozenset[str]:
        """Ends the workers whose call has returned; what they, and no other, blocked on ("" for the driver)."""
        freed: set[str] = set()
        for worker in [each for each in self._workers if each.answered_late()]:
            freed.update(self._workers.pop(worker))
            worker.end(patience_s)
        return frozenset(freed - self._blocked)

    def end(self, patience_s: float) -> list[tuple[int, str, str]]:
        """Asks every worker to end; pid, target and call of those that do not, which are forgotten.

        All share the patience: they are asked at once, and one that ends early leaves its part to the others.
        """
        deadline_s = time.monotonic() + patience_s
        for worker in self._workers:
            worker.close()
        alive = []
        for done, worker in enumerate(self._workers):
            target, call = worker.current()
            share_s = (deadline_s - time.monotonic()) / (len(self._workers) - done)
            if not worker.end(max(_SHORTEST_WAIT_S, share_s)):
                alive.append((worker.pid, target, call))
        self._workers.clear()
        return alive

    @property
    def _blocked(self) -> frozenset[str]:
        return frozenset(target for blocked in self._workers.values() for target in blocked)


class Crashes:
    """Counts ends of workers by the GPU whose call was under way, so that no crash repeats at every interval."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._resting: dict[str, int] = {}
        self._rest: dict[str, int] = {}
        self._calm = 0
        self.blamed = False
        """Whether the newest crash was in the call of a known GPU."""
        self.pause = 0
        """Intervals to wait before the next worker starts."""

    def count(self, target: str) -> bool:
        """Counts one crash; whether the GPU is to be left alone now. An empty target is nobody's call."""
        self._calm = 0
        self.blamed = bool(target)
        self._counts[target] = self._counts.get(target, 0) + 1
        if target and self._counts[target] >= _CRASHES:
            rest = self._rest.get(target, _FIRST_REST)
            self._resting[target] = rest
            self._rest[target] = min(2 * rest, _LONGEST_REST)
            self._counts[target] = _CRASHES - 1  # after the rest, a single crash suffices
            return True
        self.pause = min(self._counts[target] - 1, _LONGEST_PAUSE)
        return False

    def survived(self) -> None:
        """A whole interval was answered: the next worker may start at once, and after many of them all is forgotten."""
        self.pause, self.blamed = 0, False
        self._calm += 1
        if self._calm == _CALM:
            self._counts.clear()
            self._rest = {target: rest for target, rest in self._rest.items() if target in self._resting}

    def avoided(self) -> frozenset[str]:
        """GPUs that are left alone."""
        return frozenset(self._resting)

    def due(self) -> frozenset[str]:
        """Counts one interval; the GPUs whose rest is over."""
        over = frozenset(target for target, left in self._resting.items() if left <= 1)
        self._resting = {target: left - 1 for target, left in self._resting.items() if left > 1}
        return over
