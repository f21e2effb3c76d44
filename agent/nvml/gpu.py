"""What is known of one GPU between two driver calls, and the words for what a call may lead to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

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


class Announces(Protocol):
    """Told of every call before it is made, so that a call that never returns can be named."""

    def announce(self, uuid: str, call: str) -> None:
        """Takes the GPU (`#index` before its UUID is known, empty for the driver as a whole) and the call's name."""
        ...

    def returned(self) -> None:
        """Takes note that the call has returned."""
        ...


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
class Incident:
    """Something to be written as an event; without a time of its own it gets that of the row it comes with."""

    kind: str
    detail: str
    gpu: str | None = None
    code: int | None = None
    time_ms: int | None = None


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
