"""A scenario: GPUs over time and what goes wrong, written as the file that the fake driver plays."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.fakes.nvml.lines import scenario_lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.nvml.devices import Gpu
    from tests.fakes.nvml.faults import Fault, Xid
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
    event_poll_ms: int = 0
    """How often the wait for events looks; 0: it sleeps."""

    def seconds(self, unix_s: float) -> float:
        """Scenario time of a moment on the wall clock."""
        return unix_s - self.start_ms / 1000

    def write(self, path: Path) -> Path:
        """Writes the scenario file, whole or not at all, and returns its path."""
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text("\n".join(scenario_lines(self)) + "\n", encoding="utf-8")
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
