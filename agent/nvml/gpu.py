"""The state of one GPU between driver calls, and what worker and supervisor share.

They share requests, answers, and a page of memory that names the current driver call.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    import mmap

    from agent.rows import AgentRow, DeviceRow, EventRow, GpuRow, ProcessRow
    from agent.snapshot import GpuErrors

STRIKES = 3
"""Failures in a row of one call after which a GPU counts as degraded."""

_STRIKES_LAST = 6  # intervals: a call that fails is repeated sooner


class GpuGoneError(Exception):
    """This GPU is unusable for now; `health` is its state, `reason` the cause where the state does not imply it."""

    def __init__(self, health: str, reason: str = "") -> None:
        super().__init__(health)
        self.health = health
        self.reason = reason


class DriverGoneError(Exception):
    """The driver itself is no longer usable; a new process has to load it again."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class CallCosts:
    """The cost of the driver calls since the last report."""

    calls: int = 0
    busy_s: float = 0.0
    slowest_s: float = 0.0
    slowest_call: str | None = None

    def add(self, call: str, seconds: float) -> None:
        self.calls += 1
        self.busy_s += seconds
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest_call = seconds, call


@dataclass
class DriverGpu:
    """One GPU or MIG instance: its handle, its unsupported calls and its failures."""

    handle: Any
    uuid: str
    index: int
    off: dict[str, str] = field(default_factory=dict)
    """Calls that are switched off, and the kind of event that reported it."""
    fields_off: set[int] = field(default_factory=set)
    """Field values that this GPU does not have."""
    reported: set[str] = field(default_factory=set)
    strikes: dict[str, int] = field(default_factory=dict)
    """Number of failures in a row, by call."""
    rows: int = 0
    """Number of intervals so far."""
    struck_in_row: dict[str, int] = field(default_factory=dict)
    parent: DriverGpu | None = None
    """The GPU that a MIG instance belongs to."""
    gpu_instance_id: int | None = None
    split: bool = False
    """Whether MIG is on."""

    @property
    def blamed(self) -> str:
        """Return the UUID to which a blocked or crashing call is attributed: a worker can only skip whole GPUs."""
        return self.uuid if self.parent is None else self.parent.uuid

    @property
    def degraded(self) -> bool:
        """Return whether a call has failed too often in a row."""
        return any(count >= STRIKES for count in self.strikes.values())

    def next_row(self) -> None:
        """Count an interval; forget failures of calls that are no longer made, because others replaced them."""
        self.rows += 1
        for key in [key for key, row in self.struck_in_row.items() if self.rows - row > _STRIKES_LAST]:
            del self.struck_in_row[key]
            self.strikes.pop(key, None)

    def ask_again(self) -> None:
        """Forget which calls were refused, because rights, modes and drivers change."""
        self.off.clear()
        self.fields_off.clear()


PAGE_BYTES = 256
_COUNTER = struct.Struct("=Q")


class StatusPage:
    """Shared memory that the worker writes before and after each call, and the supervisor reads when no answer comes.

    It names a call that never returns. The counter is odd during a call, so the end of a call writes only the counter.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._count = 0
        self._labels: dict[tuple[str, str], bytes] = {}

    def announce(self, uuid: str, call: str) -> None:
        """Write the GPU (`#index` before its UUID is known, empty for the driver as a whole) and the call's name."""
        label = self._labels.get((uuid, call))
        if label is None:
            label = f"{uuid} {call}".encode()[: PAGE_BYTES - _COUNTER.size - 1] + b"\0"
            self._labels[uuid, call] = label
        self._memory[_COUNTER.size : _COUNTER.size + len(label)] = label
        self._count += 1
        _COUNTER.pack_into(self._memory, 0, self._count)

    def returned(self) -> None:
        self._count += 1
        _COUNTER.pack_into(self._memory, 0, self._count)

    def current(self) -> tuple[str, str]:
        """Return GPU and name of the current call; two empty texts where there is none."""
        if self.progress() % 2 == 0:
            return "", ""
        text = self._memory[_COUNTER.size : PAGE_BYTES].split(b"\0", 1)[0].decode(errors="replace")
        uuid, _, call = text.partition(" ")
        return uuid, call

    def progress(self) -> int:
        """Return a number that changes whenever a call begins or returns."""
        return int(_COUNTER.unpack_from(self._memory)[0])


Entries: TypeAlias = Literal["all", "changed", "none"]
"""Which rows of the `device` table to read."""


class OpenRequest(TypedDict):
    op: Literal["open"]
    trials: list[tuple[str, str]]
    """Calls that blocked or ended an earlier worker: the GPU, as the status page names it, and the driver call."""


class IntervalRequest(TypedDict):
    """The request for the interval [start_ms, end_ms) that has just ended."""

    op: Literal["row"]
    start_ms: int
    end_ms: int
    list_processes: bool
    devices: Entries
    errors: bool


class WatchedGpus(TypedDict):
    """The GPUs that the worker watches, and those that it cannot open."""

    gpus: list[str]
    instances: dict[str, list[str]]
    """UUIDs of MIG instances by their parent's UUID."""
    missing: list[int]
    """Positions of GPUs that cannot be opened."""
    count: int
    returned: list[tuple[str, str]]
    """The calls on trial that have returned since the last answer, as the request named them."""


class OpenAnswer(WatchedGpus):
    """New inventory without times, new error counters, and the events since the last answer."""

    device: list[DeviceRow]
    errors: list[GpuErrors]
    incidents: list[EventRow]


class IntervalAnswer(OpenAnswer):
    gpu: list[GpuRow]
    process: list[ProcessRow]
    costs: AgentRow
    """The columns of the agent's row that this worker fills."""
    cpu_s: float
    """Counts since the worker's start."""


class DriverGoneAnswer(TypedDict):
    """The answer of a worker that has lost the driver, with the events before, often an XID."""

    gone_code: int
    message: str
    incidents: list[EventRow]
