"""The interface of every source of rows, and the runner that times sources, isolates their failures and counts them.

A source of the host is a `Collector`, listed in agent/supervise/sources.py. A group of a GPU's columns is a
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
"""The health of a GPU in an interval without any observation."""

Result = TypeVar("Result")

_MOST_REASONS = 256
"""Most remembered reasons. Messages may have varying parts (a process, an address), so the oldest is forgotten."""


@dataclass(frozen=True)
class Interval:
    """The interval [start_ms, end_ms) that has just ended, and the worker's process lists."""

    start_ms: int
    end_ms: int
    processes: Sequence[ProcessRow] = ()
    """The driver's process lists that were read in this interval."""
    pids: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The processes of the newest list per GPU, by UUID."""

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


@dataclass(frozen=True)
class PodServer:
    """A pod of this host that has metrics, and may be an inference server."""

    namespace: str
    pod: str
    url: str
    """Address of its metrics."""
    gpus: tuple[str, ...]
    """GPUs that its processes hold, else those allocated to it."""
    listed_ms: int
    """Time of the kubelet's list that names it."""


class Collector(ABC):
    """One source of the supervisor's rows."""

    name = ""
    """The source's name in events and in the log."""
    table = ""

    @abstractmethod
    def collect(self, interval: Interval) -> Sequence[AnyRow]:
        """Return rows of the table for this interval, often none. An error costs only this source's rows."""

    def unknown(self, _: Interval) -> Sequence[AnyRow]:
        """Return the rows for an interval in which `collect` has failed: the facts that are known without it."""
        return ()

    def take_incidents(self) -> Sequence[EventRow]:
        """Return the events since the last call; an event without a time has just happened."""
        return ()

    def close(self) -> None:  # noqa: B027  # most have no thread
        """End the source's threads."""


@dataclass
class CollectorCosts:
    runs: int = 0
    failures: int = 0
    wall_s: float = 0.0


class CollectorRuns:
    """Runs collectors: measures their time, isolates failures, and reports every reason of a collector once."""

    def __init__(self) -> None:
        self.costs: dict[str, CollectorCosts] = {}
        self._reasons: dict[tuple[str, str], None] = {}  # oldest first
        self._incidents: list[str] = []

    def run(
        self, name: str, collect: Callable[[], Result], fallback: Result, expected: tuple[type[Exception], ...] = ()
    ) -> Result:
        """Return the result of `collect`, or `fallback` where it fails; `expected` errors pass to the caller."""
        costs = self.costs.get(name)
        if costs is None:
            costs = self.costs[name] = CollectorCosts()
        begun_s = time.perf_counter()
        try:
            return collect()
        except expected:
            raise
        except Exception as error:  # noqa: BLE001  # other collectors continue; the event reports the error
            costs.failures += 1
            self._report(name, error)
            return fallback
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
        """Return a sentence per new reason since the last call, for events of the kind `part_failed`."""
        taken, self._incidents = self._incidents, []
        return taken
