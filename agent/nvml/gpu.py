"""What is known of one GPU between two driver calls, and what worker and supervisor share.

They share a page of memory that names the driver call being made, requests and answers.
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

_STRIKES_LAST = 6  # intervals: a call that fails is made again sooner


class GpuGoneError(Exception):
    """This GPU cannot be used for now; `health` says how, and `reason` why where that is not plain."""

    def __init__(self, health: str, reason: str = "") -> None:
        super().__init__(health)
        self.health = health
        self.reason = reason


class DriverGoneError(Exception):
    """The driver itself cannot be used any more; a new process has to load it again."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class CallCosts:
    """What the driver calls since the last look cost."""

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
    """One GPU or MIG instance: its handle, what it cannot do and how it fares."""

    handle: Any
    uuid: str
    index: int
    off: dict[str, str] = field(default_factory=dict)
    """Calls that are switched off, and the kind of event that said so."""
    fields_off: set[int] = field(default_factory=set)
    """Field values that this GPU does not have."""
    said: set[str] = field(default_factory=set)
    strikes: dict[str, int] = field(default_factory=dict)
    """Failures in a row, by call."""
    rows: int = 0
    """Intervals so far."""
    struck_in_row: dict[str, int] = field(default_factory=dict)
    parent: DriverGpu | None = None
    """The GPU that a MIG instance belongs to."""
    gpu_instance_id: int | None = None
    split: bool = False
    """Whether MIG is on."""

    @property
    def blamed(self) -> str:
        """The UUID that a blocked or crashing call is put down to: a worker can leave whole GPUs out only."""
        return self.uuid if self.parent is None else self.parent.uuid

    @property
    def degraded(self) -> bool:
        """Whether some call has failed too often in a row."""
        return any(count >= STRIKES for count in self.strikes.values())

    def next_row(self) -> None:
        """Counts an interval, and forgets failures of calls that are not made any more: stand-ins for others."""
        self.rows += 1
        for key in [key for key, row in self.struck_in_row.items() if self.rows - row > _STRIKES_LAST]:
            del self.struck_in_row[key]
            self.strikes.pop(key, None)

    def ask_again(self) -> None:
        """Forgets what was refused: rights, modes and drivers change."""
        self.off.clear()
        self.fields_off.clear()


PAGE_BYTES = 256
_COUNTER = struct.Struct("=Q")


class StatusPage:
    """Written by the worker before and after each call, read by the supervisor when no answer comes.

    A call that never returns can so be named. The counter is odd while a call is being made, so that after a call nothing but the counter has to be written.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._count = 0
        self._labels: dict[tuple[str, str], bytes] = {}

    def announce(self, uuid: str, call: str) -> None:
        """Takes the GPU (`#index` before its UUID is known, empty for the driver as a whole) and the call's name."""
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
        """GPU and name of the call being made; two empty strings for none."""
        if self.progress() % 2 == 0:
            return "", ""
        text = self._memory[_COUNTER.size : PAGE_BYTES].split(b"\0", 1)[0].decode(errors="replace")
        uuid, _, call = text.partition(" ")
        return uuid, call

    def progress(self) -> int:
        """Another number whenever a call has begun or returned."""
        return int(_COUNTER.unpack_from(self._memory)[0])


Entries: TypeAlias = Literal["all", "changed", "none"]
"""Which rows of the `device` table to look at."""


class OpenRequest(TypedDict):
    """The first request to a worker."""

    op: Literal["open"]
    trials: list[tuple[str, str]]
    """GPU, as the status page names it, and driver call: calls that blocked or ended an earlier worker."""


class IntervalRequest(TypedDict):
    """Asks for the interval [start_ms, end_ms) that has just ended."""

    op: Literal["row"]
    start_ms: int
    end_ms: int
    list_processes: bool
    devices: Entries
    errors: bool


class WatchedGpus(TypedDict):
    """Who is watched, and who cannot be."""

    gpus: list[str]
    instances: dict[str, list[str]]
    """UUIDs of MIG instances by that of their parent."""
    missing: list[int]
    """Positions of GPUs that cannot be opened."""
    count: int
    returned: list[tuple[str, str]]
    """The calls on trial that have returned since the answer before, as the request named them."""


class OpenAnswer(WatchedGpus):
    """New inventory without times, new error counters, and what happened since the answer before."""

    device: list[DeviceRow]
    errors: list[GpuErrors]
    incidents: list[EventRow]


class IntervalAnswer(OpenAnswer):
    """An interval's rows, and what they have cost."""

    gpu: list[GpuRow]
    process: list[ProcessRow]
    costs: AgentRow
    """The columns that are this worker's."""
    cpu_s: float
    """Since the worker's start."""


class DriverGoneAnswer(TypedDict):
    """The answer of a worker that has lost the driver, and what happened before: an XID often comes first."""

    gone_code: int
    message: str
    incidents: list[EventRow]
