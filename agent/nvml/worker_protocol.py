"""What worker and supervisor share: a page of memory that names the driver call being made, requests and answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    import mmap

    from agent.rows import DeviceRow, EventRow, GpuRow, ProcessRow
    from agent.snapshot import GpuErrors

PAGE_BYTES = 256
_COUNTER = struct.Struct("=Q")


class StatusPage:
    """Written by the worker before and after each call, read by the supervisor when no answer comes.

    The counter is odd while a call is being made, so that after a call nothing but the counter has to be written.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._count = 0
        self._labels: dict[tuple[str, str], bytes] = {}

    def announce(self, uuid: str, call: str) -> None:
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


class WorkerCosts(TypedDict):
    """What the driver calls since the answer before have cost."""

    calls: int
    busy_s: float
    slowest_s: float
    slowest_call: str | None


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
    costs: WorkerCosts
    cpu_s: float
    """Of this worker since its start."""
    rss_bytes: int


class LostDriver(TypedDict):
    """What the driver answered when it was lost."""

    code: int
    message: str


class DriverGoneAnswer(TypedDict):
    """The answer of a worker that has lost the driver, and what happened before: an XID often comes first."""

    driver_gone: LostDriver
    incidents: list[EventRow]
