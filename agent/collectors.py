"""The shape of every source of rows, and the place where sources are run: timed, isolated, counted.

A source of the host is a `Collector`, listed in agent/supervise/sources.py. A subject of each GPU is a
`GpuCollector` (agent/nvml/readings.py), listed in `COLLECTORS` of agent/nvml/sampler.py.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.rows import AnyRow, EventRow, ProcessRow

UNKNOWN = "unknown"
"""The health of a GPU in an interval of which nothing was observed."""

Result = TypeVar("Result")

_MOST_REASONS = 256
"""Messages may name what differs every time (a process, an address): the oldest is forgotten, and told again if it returns."""


@dataclass(frozen=True)
class Interval:
    """The interval [start_ms, end_ms) that has just ended, and what the worker has said of its processes."""

    start_ms: int
    end_ms: int
    processes: Sequence[ProcessRow] = ()
    """The process lists that were read in this interval, as the driver gives them."""
    pids: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The processes of the newest list of each GPU, by UUID."""

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


class Collector(ABC):
    """One source of the supervisor's rows."""

    name = ""
    """What events and the log call it."""
    table = ""

    @abstractmethod
    def collect(self, interval: Interval) -> Sequence[AnyRow]:
        """Rows of the table for this interval, often none; may raise, which costs its own rows and nothing else."""

    def unknown(self, _: Interval) -> Sequence[AnyRow]:
        """The rows that stand in where `collect` has failed: what is known without it."""
        return ()

    def take_incidents(self) -> Sequence[EventRow]:
        """What happened since the last call; an event without a time has just happened."""
        return ()

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """Ends what runs beside the sampling."""


@dataclass
class CollectorCosts:
    """What one collector has cost in this run."""

    runs: int = 0
    failures: int = 0
    wall_s: float = 0.0


class CollectorRuns:
    """Runs collectors: times each, isolates its failure, and reports each reason of each collector once."""

    def __init__(self) -> None:
        self.costs: dict[str, CollectorCosts] = {}
        self._reasons: dict[tuple[str, str], None] = {}  # oldest first
        self._incidents: list[str] = []

    def run(
        self, name: str, collect: Callable[[], Result], otherwise: Result, expected: tuple[type[Exception], ...] = ()
    ) -> Result:
        """The result of `collect`, `otherwise` where it fails; `expected` errors are the caller's and pass."""
        costs = self.costs.get(name)
        if costs is None:
            costs = self.costs[name] = CollectorCosts()
        begun_s = time.perf_counter()
        try:
            return collect()
        except expected:
            raise
        except Exception as error:  # noqa: BLE001  # the others go on; the event says what to mend
            costs.failures += 1
            self._report(name, error)
            return otherwise
        finally:
            costs.runs += 1
            costs.wall_s += time.perf_counter() - begun_s

    def _report(self, name: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if (name, reason) in self._reasons:
            return
        if len(self._reasons) >= _MOST_REASONS:
            del self._reasons[next(iter(self._reasons))]
        self._reasons[name, reason] = None
        self._incidents.append(f"the collector {name} failed, and its columns are unknown: {reason}")

    def take_details(self) -> list[str]:
        """A sentence for each new reason since the last call, for events of the kind `part_failed`."""
        taken, self._incidents = self._incidents, []
        return taken
