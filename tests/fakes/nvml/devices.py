"""What a scenario is made of: GPUs, MIG instances and processes."""

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
ThrottleReason = Literal["power_cap", "sync_boost", "sw_thermal", "hw_thermal", "power_brake"]

THROTTLE_BITS: dict[ThrottleReason, int] = {
    "power_cap": 0x04,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
}
"""The bit of each reason in NVML's mask."""

RecordedEntry = tuple[float, int | None, int | None]

GRAPHICS_UTIL, NVLINK_RX, NVLINK_TX = 1, 60, 61
"""GPM metrics that a card has without being told."""


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
    """A MIG instance; `slot` is its place in NVML's enumeration, which a later instance may take over.

    `util` is its GPM metric 1, where that is not among `gpm`.
    """

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
    util: Steps | None = None
    gpm: Mapping[int, Steps] = field(default_factory=dict)
    gpm_nan: tuple[int, ...] = ()
    start_s: float = 0.0
    end_s: float | None = None

    def gpm_metrics(self) -> dict[int, Steps]:
        """Every GPM metric that the instance has a value of."""
        derived = {} if self.util is None else {GRAPHICS_UTIL: self.util}
        return {metric: steps for metric, steps in (derived | dict(self.gpm)).items() if metric not in self.gpm_nan}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; its index is its place in the scenario.

    Mode: `mig_mode` defaults to on where there are MIG instances, `gpm_supported` to whether there are GPM metrics; a
    card with GPM always has metric 1 (`util`), and 60 and 61 where it has NVLink, unless they are given or `gpm_nan`.

    Ring: `ring_garbage` adds an entry without a time stamp and one beyond 100 % to every answer.

    Bus: without a `pci_bus_id` it has an address of its own, from 0000:17:00 on.

    Recorded cards: `ring_recorded` are the (seconds, utilization, memory utilization) entries of a real ring with the
    time stamps that they had, played as they are together with `rates`; a value of None is an entry of the other ring
    only. `energy_power_w` is what the energy counter sums up where that is not `power_w`.

    Errors: `ecc_corrected` and `ecc_uncorrected` count from the scenario's start, the `_offset` ones before it.
    `throttled` says in which share of the time each reason holds; the bits of `throttle` say it where it is silent.
    `field_errors` are NVML return codes by field id.

    GPUs of one `nvlink_group` reach one another by NVLink; None: it has none.
    """

    uuid: str
    model: str = "NVIDIA H100 80GB HBM3"
    mem_total_bytes: int = 80 * GIB
    mem_reserved_bytes: int = GIB // 2
    util: Steps = ZERO
    mem_util: Steps = ZERO
    mem_used: Steps = ZERO
    rates: tuple[Steps, Steps] | None = None
    encoder_util: Steps = ZERO
    decoder_util: Steps = ZERO
    ring_recorded: tuple[RecordedEntry, ...] | None = None
    ring_size: int = 72
    power_w: Steps = _IDLE_POWER_W
    energy_power_w: Steps | None = None
    temperature_c: Steps = _IDLE_TEMPERATURE_C
    mem_temperature_c: Steps = _IDLE_MEM_TEMPERATURE_C
    sm_clock: Steps = _SM_CLOCK_MHZ
    mem_clock: Steps = _MEM_CLOCK_MHZ
    throttle: Steps = ZERO
    throttled: Mapping[ThrottleReason, Steps] = field(default_factory=dict)
    throttled_offset_ns: Mapping[ThrottleReason, int] = field(default_factory=dict)
    max_sm_clock: int = 1980
    max_mem_clock: int = 2619
    power_limit_w: float = 700.0
    energy_offset_mj: int = 0
    ecc_corrected: Steps = ZERO
    ecc_uncorrected: Steps = ZERO
    ecc_corrected_offset: int = 0
    ecc_uncorrected_offset: int = 0
    row_remap: bool = True
    remapped_corrected: Steps = ZERO
    remapped_uncorrected: Steps = ZERO
    remap_pending: Steps = ZERO
    remap_failed: Steps = ZERO
    pcie_replay: Steps = ZERO
    recovery_action: Steps = ZERO
    field_errors: Mapping[int, int] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    gpm: Mapping[int, Steps] = field(default_factory=dict)
    gpm_nan: tuple[int, ...] = ()
    gpm_supported: bool | None = None
    mig: tuple[MigInstance, ...] = ()
    mig_capable: bool = True
    mig_mode: Steps | None = None
    pci_bus_id: str | None = None
    serial: str = "1650000000001"
    minor: int | None = None
    architecture: int = 9
    compute_capability: tuple[int, int] = (9, 0)
    persistence: bool = True
    ecc: bool = True
    nvlink_group: int | None = None
    nvlink_tx_mib_per_s: Steps = ZERO
    nvlink_rx_mib_per_s: Steps = ZERO
    samples_while_idle: bool = False
    ring_garbage: bool = False

    def energy_mj(self, t_ms: int) -> int:
        """The energy counter at a millisecond since the scenario's start: exact, as it moves once a millisecond."""
        return (
            self.energy_offset_mj + (self.energy_power_w or self.power_w).integral_milli_us(0, t_ms * 1000) // 1_000_000
        )

    def throttled_ns(self, reason: ThrottleReason, t_ms: int) -> int:
        """How long clocks were held down for a reason: exact, like the energy."""
        return self.throttled_offset_ns.get(reason, 0) + self.throttled_share(reason).integral_milli_us(0, t_ms * 1000)

    def throttled_share(self, reason: ThrottleReason) -> Steps:
        """The share of the time in which a reason holds."""
        if reason in self.throttled:
            return self.throttled[reason]
        return self.throttle.map(lambda mask: 1.0 if int(mask) & THROTTLE_BITS[reason] else 0.0)

    def has_gpm(self) -> bool:
        """Whether the card says that it supports GPM."""
        return bool(self.gpm or self.gpm_nan) if self.gpm_supported is None else self.gpm_supported

    def gpm_metrics(self) -> dict[int, Steps]:
        """Every GPM metric that the whole GPU has a value of."""
        if not self.has_gpm():
            return dict(self.gpm)
        derived = {GRAPHICS_UTIL: self.util}
        if self.nvlink_group is not None:
            derived |= {NVLINK_RX: self.nvlink_rx_mib_per_s, NVLINK_TX: self.nvlink_tx_mib_per_s}
        return {metric: steps for metric, steps in (derived | dict(self.gpm)).items() if metric not in self.gpm_nan}
