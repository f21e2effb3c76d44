"""The interface of GPU collectors, and those of memory, power, temperature, clocks, processes and error counters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import pynvml

from agent.nvml.driver import read_fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agent.nvml.driver import Driver
    from agent.nvml.gpu import DriverGpu
    from agent.rows import GpuRow, ProcessRow
    from agent.snapshot import GpuErrors


Clocks: TypeAlias = "Callable[[], tuple[int, int]]"
"""The wall clock and the monotonic clock, both in microseconds."""


@dataclass(frozen=True)
class CollectedSpan:
    """The interval [start_us, end_us) that has just ended, and the clocks for reading it."""

    start_us: int
    end_us: int
    clocks: Clocks


class GpuCollector(ABC):
    """One group of a row's columns; every GPU has its own object. Methods raise GpuGoneError and DriverGoneError."""

    name = ""
    of_instances = False
    """Whether MIG instances have these columns too; other columns belong to their parent."""

    @abstractmethod
    def collect(self, driver: Driver, gpu: DriverGpu, span: CollectedSpan) -> GpuRow:
        """Return columns of the `gpu` table, without the unknown ones."""

    def drain(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> object:  # noqa: B027  # most need none
        """Read data that the driver would soon discard; called between intervals."""

    def settle(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> None:  # noqa: B027  # most need none
        """Prepare for the end of an interval; called before the interval is collected."""

    def hear(self, row: GpuRow) -> None:  # noqa: B027  # most do not need it
        """Receive the whole row, which contains this collector's columns."""

    def forget(self) -> None:  # noqa: B027  # most keep nothing
        """Drop state that is invalid after a GPU was lost or asleep."""

    @property
    def wants_every_second(self) -> bool:
        """Return whether more frequent drains give more data."""
        return False


_THROTTLED = (
    "throttled_power_cap_ms",
    "throttled_sync_boost_ms",
    "throttled_sw_thermal_ms",
    "throttled_hw_thermal_ms",
    "throttled_power_brake_ms",
)
_FIELDS = ("energy_mj", "mem_temperature_c", *_THROTTLED)
_NS_PER_MS = 1_000_000


class MemoryCollector(GpuCollector):
    """Device memory that processes use, and that the driver reserves."""

    name = "memory"
    of_instances = True

    def collect(self, driver: Driver, gpu: DriverGpu, _: CollectedSpan) -> GpuRow:
        # version 2 separates `reserved` from `used`; the older call counts both as used, so it is no substitute
        info = driver.ask(gpu, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if info is None or info.total == 0:  # unified memory reports a total of 0: unknown
            return {}
        return {"mem_used_bytes": info.used, "mem_reserved_bytes": info.reserved}


class PowerCollector(GpuCollector):
    """The values of one call for field values: power, counters of energy and throttled time, memory temperature."""

    name = "power"

    def collect(self, driver: Driver, gpu: DriverGpu, _: CollectedSpan) -> GpuRow:
        power_mw = driver.ask(gpu, pynvml.nvmlDeviceGetPowerUsage)
        fields = read_fields(driver, gpu, _FIELDS)
        energy_mj = fields.get("energy_mj")
        if energy_mj is None:
            energy_mj = driver.ask(gpu, pynvml.nvmlDeviceGetTotalEnergyConsumption)
        row: GpuRow = {
            "power_w": None if power_mw is None else round(power_mw / 1000, 1),
            "energy_mj": energy_mj,
            "mem_temperature_c": fields.get("mem_temperature_c"),
        }
        throttled = {each: fields[each] // _NS_PER_MS for each in _THROTTLED if each in fields}
        return row | cast("GpuRow", throttled)


class TemperatureCollector(GpuCollector):
    name = "temperature"

    def collect(self, driver: Driver, gpu: DriverGpu, _: CollectedSpan) -> GpuRow:
        return {"temperature_c": driver.ask(gpu, pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)}


class ClockCollector(GpuCollector):
    """Clocks, and NVML's bit mask of the reasons why they are reduced."""

    name = "clocks"

    def collect(self, driver: Driver, gpu: DriverGpu, _: CollectedSpan) -> GpuRow:
        reasons = driver.ask(gpu, pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if reasons is None:  # drivers before 535 have the older name
            reasons = driver.ask(gpu, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return {
            "sm_clock_mhz": driver.ask(gpu, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "mem_clock_mhz": driver.ask(gpu, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            "throttle_reasons": reasons,
        }


class VideoCollector(GpuCollector):
    """Utilization of the video engines in the driver's own last sampling period, a sixth of a second to a second."""

    name = "video"

    def collect(self, driver: Driver, gpu: DriverGpu, _: CollectedSpan) -> GpuRow:
        with driver.quietly():  # cards for data centers have no encoder, and some no decoder
            encoder = driver.ask(gpu, pynvml.nvmlDeviceGetEncoderUtilization)
            decoder = driver.ask(gpu, pynvml.nvmlDeviceGetDecoderUtilization)
        return {
            "encoder_util_pct": None if encoder is None else encoder[0],
            "decoder_util_pct": None if decoder is None else decoder[0],
        }


LIST_AGAIN_BYTES = 64 * 2**20
"""A change of used memory by this amount since the last list means that a process started, ended or grew."""

_LISTS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("compute", pynvml.nvmlDeviceGetComputeRunningProcesses_v3),
    ("graphics", pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3),
    ("mps", pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3),
)


def read_processes(driver: Driver, gpu: DriverGpu) -> list[ProcessRow] | None:
    """Return the driver's rows of the `process` table, without time; None where a list is unknown.

    Raises GpuGoneError and DriverGoneError.
    """
    found: list[ProcessRow] = []
    for kind, call in _LISTS:
        processes = driver.ask(gpu, call)
        if processes is None:
            if kind != "compute" and driver.unsupported(gpu, call):
                continue  # this GPU cannot have this kind of process
            return None  # a list that failed or was refused: the GPU may have users
        found.extend(
            {"gpu": gpu.uuid, "pid": each.pid, "kind": kind, "mem_used_bytes": each.usedGpuMemory} for each in processes
        )
    return found


_COUNTERS = (
    "ecc_corrected_count",
    "ecc_uncorrected_count",
    "ecc_corrected_lifetime_count",
    "ecc_uncorrected_lifetime_count",
    "remapped_rows_corrected_count",
    "remapped_rows_uncorrected_count",
    "pcie_replay_count",
)
_FLAGS = ("row_remap_pending", "row_remap_failed")
_ERROR_FIELDS = (*_COUNTERS, *_FLAGS, "recovery_action")
_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "none",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "gpu_reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "node_reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain_p2p",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain_and_reset",
}


def read_errors(driver: Driver, gpu: DriverGpu) -> GpuErrors | None:
    """Return the error counters; None where the GPU has none. Raises GpuGoneError and DriverGoneError."""
    fields = read_fields(driver, gpu, _ERROR_FIELDS)
    if not fields:
        return None
    row: dict[str, int | str | None] = {"gpu": gpu.uuid}
    row |= {column: fields.get(column) for column in _COUNTERS}
    row |= {column: bool(fields[column]) if column in fields else None for column in _FLAGS}
    action = fields.get("recovery_action")
    row["recovery_action"] = None if action is None else _ACTIONS.get(action, str(action))
    return cast("GpuErrors", row)


def say_what_changed(driver: Driver, gpu: DriverGpu, before: GpuErrors | None, after: GpuErrors) -> None:
    """Report to operators: new uncorrected errors, a pending or failed remap, an action that the driver requests.

    Conditions at the start are reported too, except errors that a card had before.
    """
    known: GpuErrors = before or {}
    errors, errors_before = after["ecc_uncorrected_count"], known.get("ecc_uncorrected_count")
    if errors is not None and errors_before is not None and errors > errors_before:
        driver.say("ecc_uncorrected", f"{errors - errors_before} new uncorrected memory errors", gpu)
    if after["row_remap_pending"] and not known.get("row_remap_pending"):
        driver.say("row_remap_pending", "the remapping of a memory row is pending: reset the GPU", gpu)
    if after["row_remap_failed"] and not known.get("row_remap_failed"):
        driver.say("row_remap_failed", "a memory row could not be remapped: replace the card", gpu)
    action = after["recovery_action"]
    if action is not None and action not in ("none", known.get("recovery_action")):
        driver.say("recovery_action", f"the driver requests {action.replace('_', ' ')}", gpu)
