"""A scenario: GPUs over time and what goes wrong, written as the file that the fake driver plays."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.fakes.nvml.steps import constant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.fakes.nvml.devices import Fault, Gpu, MigInstance, Process, Xid
    from tests.fakes.nvml.steps import Steps

RING_SIZE = 72
RING_SPAN_US = 10_000_000


@dataclass(frozen=True, slots=True)
class RingEntry:
    """One entry that the driver's sample ring gets: its time stamp, the period before it and the rounded means."""

    timestamp_us: int
    period_us: int
    util_pct: int
    mem_util_pct: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the fake driver plays; `start_ms` (milliseconds since the epoch) may lie in the past."""

    gpus: tuple[Gpu, ...]
    start_ms: int
    faults: tuple[Fault, ...] = ()
    xids: tuple[Xid, ...] = ()
    driver_version: str = "580.65.06"
    cuda_driver_version: int = 13000
    sample_clock_offset_us: int = 0

    def seconds(self, unix_s: float) -> float:
        """Scenario time of a moment on the wall clock."""
        return unix_s - self.start_ms / 1000

    def write(self, path: Path) -> Path:
        """Writes the scenario file, whole or not at all, and returns its path."""
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text("\n".join(self._lines()) + "\n", encoding="utf-8")
        partial.replace(path)
        return path

    def environment(self, folder: Path, path: Path) -> dict[str, str]:
        """The variables that make a new process load the library in `folder` and play the scenario in `path`."""
        library_path = os.environ.get("LD_LIBRARY_PATH")
        return {
            "LD_LIBRARY_PATH": str(folder) if not library_path else f"{folder}:{library_path}",
            "FALLOW_FAKE_NVML": str(path),
        }

    def ring(self, gpu: int, after_us: int, until_us: int) -> tuple[RingEntry, ...]:
        """The entries with time stamps in (after_us, until_us], in the clock of the samples, oldest first."""
        from_us = max(after_us - self.sample_clock_offset_us, self.start_ms * 1000)
        numbers = range(_grid_index(from_us), _grid_index(until_us - self.sample_clock_offset_us) + 1)
        entries = (self._entry(self.gpus[gpu], number) for number in numbers)
        return tuple(entry for entry in entries if entry is not None and after_us < entry.timestamp_us <= until_us)

    def _entry(self, gpu: Gpu, number: int) -> RingEntry | None:
        end_us, before_us = _grid_us(number), _grid_us(number - 1)
        t0_us, t1_us = before_us - self.start_ms * 1000, end_us - self.start_ms * 1000
        idle = gpu.util.integral_milli_us(t0_us, t1_us) == 0
        if t0_us < 0 or (idle and not gpu.samples_while_idle):
            return None
        util_pct, mem_util_pct = _percent(gpu.util, t0_us, t1_us), _percent(gpu.mem_util, t0_us, t1_us)
        return RingEntry(end_us + self.sample_clock_offset_us, end_us - before_us, util_pct, mem_util_pct)

    def _lines(self) -> Iterator[str]:
        yield "fallow-fake-nvml 1"
        yield f"start_ms {self.start_ms}"
        yield f"sample_clock_offset_us {self.sample_clock_offset_us}"
        yield f"driver_version {self.driver_version}"
        yield f"cuda_driver_version {self.cuda_driver_version}"
        for fault in self.faults:
            where = "-" if fault.gpu is None else fault.gpu
            span = f"{_ms(fault.start_s)} {_ms(fault.end_s)}"
            yield f"fault {fault.kind} {where} {fault.function or '-'} {span} {_ms(fault.delay_s)}"
        for xid in sorted(self.xids, key=lambda xid: xid.at_s):
            yield f"xid {xid.gpu} {_ms(xid.at_s)} {xid.code}"
        for index, gpu in enumerate(self.gpus):
            yield from _gpu_lines(index, gpu)


def ms_ago(seconds: float) -> int:
    """A `start_ms` so many seconds before now."""
    return round((time.time() - seconds) * 1000)


def _grid_us(number: int) -> int:
    return number * RING_SPAN_US // RING_SIZE


def _grid_index(epoch_us: int) -> int:
    return ((epoch_us + 1) * RING_SIZE - 1) // RING_SPAN_US


def _percent(steps: Steps, t0_us: int, t1_us: int) -> int:
    whole = (t1_us - t0_us) * 1000
    return (steps.integral_milli_us(t0_us, t1_us) * 2 + whole) // (whole * 2)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else str(round(seconds * 1000))


def _steps(steps: Steps) -> str:
    return " ".join(f"{at_ms}:{milli}" for at_ms, milli in steps.encoded())


def _gpu_lines(index: int, gpu: Gpu) -> Iterator[str]:
    gpm_supported = bool(gpu.gpm or gpu.gpm_nan) if gpu.gpm_supported is None else gpu.gpm_supported
    yield f"gpu {gpu.uuid}"
    yield f"name {gpu.model}"
    yield f"serial {gpu.serial}"
    yield f"pci {gpu.pci_bus_id}"
    yield f"minor {index if gpu.minor is None else gpu.minor}"
    yield f"arch {gpu.architecture}"
    yield f"cc_major {gpu.compute_capability[0]}"
    yield f"cc_minor {gpu.compute_capability[1]}"
    yield f"max_sm_clock {gpu.max_sm_clock}"
    yield f"max_mem_clock {gpu.max_mem_clock}"
    yield f"power_limit_mw {round(gpu.power_limit_w * 1000)}"
    yield f"mem_total {gpu.mem_total_bytes}"
    yield f"mem_reserved {gpu.mem_reserved_bytes}"
    yield f"energy_offset_mj {gpu.energy_offset_mj}"
    yield f"gpm_supported {gpm_supported:d}"
    for flag in ("samples_while_idle", "ring_garbage", "ring_keeps_old", "mig_capable", "persistence", "ecc"):
        yield f"{flag} {getattr(gpu, flag):d}"
    for key, steps in _gpu_steps(gpu).items():
        yield f"{key} {_steps(steps)}"
    yield from _activity_lines("", gpu.processes, gpu.gpm, gpu.gpm_nan)
    for instance in gpu.mig:
        yield from _mig_lines(gpu, instance)


def _gpu_steps(gpu: Gpu) -> dict[str, Steps]:
    return {
        "util": gpu.util,
        "mem_util": gpu.mem_util,
        "mem_used": gpu.mem_used,
        "power": gpu.power_w,
        "temperature": gpu.temperature_c,
        "mem_temperature": gpu.mem_temperature_c,
        "sm_clock": gpu.sm_clock,
        "mem_clock": gpu.mem_clock,
        "throttle": gpu.throttle,
        "mig_mode": constant(1 if gpu.mig else 0) if gpu.mig_mode is None else gpu.mig_mode,
    }


def _mig_lines(gpu: Gpu, instance: MigInstance) -> Iterator[str]:
    ids = f"{instance.slot} {instance.gi} {instance.ci} {instance.gpu_slices} {instance.compute_slices}"
    span = f"{_ms(instance.start_s)} {_ms(instance.end_s)}"
    yield f"mig {instance.uuid} {ids} {instance.mem_total_bytes} {span}"
    yield f"mig_name {gpu.model} MIG {instance.profile}"
    yield f"mig_mem_used {_steps(instance.mem_used)}"
    yield from _activity_lines("mig_", instance.processes, instance.gpm, instance.gpm_nan)


def _activity_lines(
    prefix: str, processes: tuple[Process, ...], gpm: Mapping[int, Steps], gpm_nan: tuple[int, ...]
) -> Iterator[str]:
    for process in processes:
        mem = "-" if process.mem_bytes is None else process.mem_bytes
        yield f"{prefix}process {process.pid} {process.kind} {_ms(process.start_s)} {_ms(process.end_s)} {mem}"
    for metric, steps in gpm.items():
        yield f"{prefix}gpm {metric} {_steps(steps)}"
    for metric in gpm_nan:
        yield f"{prefix}gpm_nan {metric}"
