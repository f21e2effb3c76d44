"""What goes wrong in a scenario, and what the driver reports by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal[
    "lost",
    "reset_required",
    "not_supported",
    "no_permission",
    "function_not_found",
    "unknown",
    "timeout",
    "insufficient_power",
    "irq_issue",
    "corrupted_inforom",
    "operating_system",
    "in_use",
    "memory",
    "no_data",
    "insufficient_resources",
    "not_ready",
    "gpu_not_found",
    "mismatch",
    "driver_not_loaded",
    "hang",
    "slow",
    "crash",
    "unplug",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong from `start_s` on: on one GPU or all, in one function or all.

    `mismatch` and `driver_not_loaded` hit every call; `hang`, `slow` and `crash` (the process dies of SIGSEGV) also hit
    system calls where no GPU is named; the others hit device calls, or the named function. A name without version
    suffix means every version, and "nvmlInit" every way to initialise. A `mismatch` never ends for a process that was
    there before it ended.

    `unplug` takes a GPU out: a library that is initialised meanwhile does not list it (the ones behind it move up), one
    that was initialised before finds it lost, and finds it lost also when it is back, until it is initialised again.
    A GPU that is added later is one that is unplugged from the start.
    """

    kind: FaultKind
    gpu: int | None = None
    function: str | None = None
    start_s: float = 0.0
    end_s: float | None = None
    delay_s: float = 0.0

    def active(self, t0: float, t1: float | None = None) -> bool:
        """Whether the fault's time overlaps t0 to t1 seconds (or holds at t0)."""
        return self.start_s <= (t0 if t1 is None else t1) and (self.end_s is None or t0 < self.end_s)


@dataclass(frozen=True, slots=True)
class Xid:
    """A critical error that the event set of a listening process receives."""

    gpu: int
    at_s: float
    code: int
