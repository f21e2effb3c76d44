"""Utilization of one GPU, by the best source that it has: the sample ring, else the driver's own short averages."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pynvml

from agent.nvml.collector import Clocks, CollectedSpan, GpuCollector
from agent.nvml.ring import PERIOD_US, RING_US, Timeline, Utilization
from agent.nvml.util_source import is_whole_gpm, rounded_up

if TYPE_CHECKING:
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import DriverGpu
    from agent.rows import GpuRow

_CLOCK_STEP_US = 200_000  # more than the wall clock is ever slewed between two drains


@dataclass
class UtilizationMeter(GpuCollector):
    """Drains the rings of one GPU and turns them into the utilization columns of an interval."""

    name = "utilization"

    gpu_time: Timeline = field(default_factory=Timeline)
    mem_time: Timeline = field(default_factory=Timeline)
    source: str = "none"
    _drained: tuple[int, int] | None = None
    _spared: bool = False
    """Whether GPM alone told the whole interval before."""

    def drain(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> None:
        """Takes what is new; to be called at least every five seconds. Raises GpuGoneError and DriverGoneError."""
        self._drain(driver, gpu, clocks)

    def settle(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> None:
        """Drains for the end of an interval, so that the ring reaches over it. Raises as `drain` does.

        A GPU that has just begun to work has a rate and no sample yet: a period later it has one.
        """
        if self._drain(driver, gpu, clocks):
            time.sleep(1.2 * PERIOD_US / 1_000_000)
            self._drain(driver, gpu, clocks)

    def _drain(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> bool:
        """One drain; whether the rate says that a sample must be under way."""
        asked = clocks()
        samples = driver.ask_ring(gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self.gpu_time.last_seen_us)
        memory = driver.ask_ring(gpu, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, self.mem_time.last_seen_us)
        answered = clocks()  # after calls that may have taken long: no sample can be newer
        now_us = answered[0]
        watched_us, in_time = self._since_last(asked, answered)
        understood = []
        for timeline, found in ((self.gpu_time, samples), (self.mem_time, memory)):
            understood.append(found is not None and timeline.add_samples(found, now_us, in_time=in_time))
            timeline.begin(now_us)  # a ring that has a past, as it was before this worker, begins with that
        self.source = "none" if samples is None else "samples"
        if not (samples is None or self.gpu_time.behind(now_us) or self.mem_time.behind(now_us)):
            return False
        rates = driver.ask(gpu, pynvml.nvmlDeviceGetUtilizationRates)
        if rates is None:
            return False
        if samples is None:
            self.source = "rates"
            self.gpu_time.add_rate(rates.gpu, now_us)
        elif understood[0]:
            _explain_silence(self.gpu_time, rates.gpu, now_us, watched_us)
        if memory is None:
            self.mem_time.add_rate(rates.memory, now_us)
        elif understood[1]:
            _explain_silence(self.mem_time, rates.memory, now_us, watched_us)
        # a silent ring beside a rate above 0: what happened is not known before the next sample
        return samples is not None and rates.gpu > 0 and self.gpu_time.behind(now_us)

    def _since_last(self, asked: tuple[int, int], answered: tuple[int, int]) -> tuple[int, bool]:
        """How long ago the drain before was asked for, and whether the ring surely holds everything since then."""
        before, self._drained = self._drained, asked
        if before is None:
            return 0, False
        wall_us, steady_us = answered[0] - before[0], answered[1] - before[1]
        step_us = wall_us - steady_us
        if abs(step_us) <= _CLOCK_STEP_US:
            return steady_us, steady_us < RING_US
        self._drained = answered  # so that a step during the calls is taken once
        for timeline in (self.gpu_time, self.mem_time):
            timeline.step(step_us, answered[0])
        return steady_us, False

    @property
    def wants_every_second(self) -> bool:
        """Whether only the short averages are there, which see the more the more often they are read, and GPM does not see all."""
        return self.source == "rates" and not self._spared

    def hear(self, row: GpuRow) -> None:
        self._spared = is_whole_gpm(row)

    def forget(self) -> None:
        self.source, self._spared = "none", False

    def collect(self, _driver: Driver, _gpu: DriverGpu, span: CollectedSpan) -> GpuRow:
        return self.take(span.start_us, span.end_us)

    def take(self, start_us: int, end_us: int) -> GpuRow:
        busy, memory = self.gpu_time.take(start_us, end_us), self.mem_time.take(start_us, end_us)
        return {
            "util_source": self.source,
            "gpu_util_pct": _mean(busy),
            "gpu_util_max_pct": busy.max_pct,
            "gpu_util_p98_pct": busy.p98_pct,
            "gpu_util_zero_ratio": None if busy.zero_ratio is None else _share_at_zero(busy.zero_ratio),
            "gpu_util_coverage_ratio": round(busy.coverage_ratio, 4),
            "gpu_util_unsampled_ratio": round(busy.unsampled_ratio, 4),
            "mem_util_pct": _mean(memory),
        }


def _explain_silence(timeline: Timeline, rate: int, now_us: int, watched_us: int) -> None:
    """What a ring without newer samples means, by the driver's rate: idle, or something that nobody can tell yet."""
    if timeline.behind(now_us):
        if rate == 0:
            timeline.add_idle(now_us, watched_us=watched_us)
        else:
            timeline.doubt(now_us)


def _share_at_zero(ratio: float) -> float:
    """Rounded, and 1 only where all of it was at zero."""
    return min(round(ratio, 4), 0.9999) if ratio < 1 else 1.0


def _mean(found: Utilization) -> float | None:
    return None if found.mean_pct is None else rounded_up(found.mean_pct, 2)
