"""What a scenario is made of: GPUs, MIG instances, processes, faults, events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.fakes.nvml.steps import Steps, constant

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
ZERO = constant(0)

_IDLE_POWER_W = constant(70)
_IDLE_TEMPERATURE_C = constant(35)
_IDLE_MEM_TEMPERATURE_C = constant(40)
_SM_CLOCK_MHZ = constant(1980)
_MEM_CLOCK_MHZ = constant(2619)

ProcessKind = Literal["compute", "graphics", "mps"]
FaultKind = Literal[
    "lost",
    "reset_required",
    "not_supported",
    "no_permission",
    "function_not_found",
    "hang",
    "unknown",
    "timeout",
    "slow",
    "mismatch",
    "driver_not_loaded",
]


@dataclass(frozen=True, slots=True)
class Process:
    """A process with a context on a GPU; `mem_bytes` None reads as "not available"."""

    pid: int
    start_s: float = 0.0
    end_s: float | None = None
    mem_bytes: int | None = GIB
    kind: ProcessKind = "compute"


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance; `slot` is its place in NVML's enumeration, which a later instance may take over."""

    uuid: str
    gi: int
    ci: int = 0
    slot: int = 0
    profile: str = "1g.10gb"
    gpu_slices: int = 1
    compute_slices: int = 1
    mem_total_bytes: int = 10 * GIB
    mem_used: Steps = ZERO
    processes: tuple[Process, ...] = ()
    gpm: Mapping[int, Steps] = field(default_factory=dict)
    gpm_nan: tuple[int, ...] = ()
    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; its index is its place in the scenario.

    `mig_mode` defaults to on where there are MIG instances, `gpm_supported` to whether there are GPM metrics.
    `ring_keeps_old` lets an idle GPU's sample ring keep entries older than 10 s; `ring_garbage` adds an entry without a
    time stamp and one beyond 100 % to every answer.
    """

    uuid: str
    model: str = "NVIDIA H100 80GB HBM3"
    mem_total_bytes: int = 80 * GIB
    mem_reserved_bytes: int = GIB // 2
    util: Steps = ZERO
    mem_util: Steps = ZERO
    mem_used: Steps = ZERO
    power_w: Steps = _IDLE_POWER_W
    temperature_c: Steps = _IDLE_TEMPERATURE_C
    mem_temperature_c: Steps = _IDLE_MEM_TEMPERATURE_C
    sm_clock: Steps = _SM_CLOCK_MHZ
    mem_clock: Steps = _MEM_CLOCK_MHZ
    throttle: Steps = ZERO
    max_sm_clock: int = 1980
    max_mem_clock: int = 2619
    power_limit_w: float = 700.0
    energy_offset_mj: int = 0
    processes: tuple[Process, ...] = ()
    gpm: Mapping[int, Steps] = field(default_factory=dict)
    gpm_nan: tuple[int, ...] = ()
    gpm_supported: bool | None = None
    mig: tuple[MigInstance, ...] = ()
    mig_capable: bool = True
    mig_mode: Steps | None = None
    pci_bus_id: str = "0000:17:00"
    serial: str = "1650000000001"
    minor: int | None = None
    architecture: int = 9
    compute_capability: tuple[int, int] = (9, 0)
    persistence: bool = True
    ecc: bool = True
    samples_while_idle: bool = False
    ring_garbage: bool = False
    ring_keeps_old: bool = False

    def energy_mj(self, t: float) -> int:
        """The energy counter at t seconds: exact, as the counter itself moves once a millisecond."""
        return self.energy_mj_at_ms(round(t * 1000))

    def energy_mj_at_ms(self, t_ms: int) -> int:
        """The energy counter at a whole millisecond since the scenario's start."""
        milliwatt_us = self.power_w.integral_milli_us(0, t_ms * 1000) if t_ms > 0 else 0
        return self.energy_offset_mj + milliwatt_us // 1_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong from `start_s` on: on one GPU or all, in one function or all.

    `mismatch` and `driver_not_loaded` strike every call; `hang` and `slow` strike system calls too where no GPU is named;
    the others strike device calls, or the named function. A name without version suffix means every version, and
    "nvmlInit" every way to initialise. A `mismatch` never ends for a process that was there before it ended.
    """

    kind: FaultKind
    gpu: int | None = None
    function: str | None = None
    start_s: float = 0.0
    end_s: float | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Xid:
    """A critical error that the event set of a listening process receives."""

    gpu: int
    at_s: float
    code: int
