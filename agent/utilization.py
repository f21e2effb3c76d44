"""Utilization of one GPU, by the best source that it has: the sample ring, else the driver's own short averages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pynvml

from agent.ring import Timeline

if TYPE_CHECKING:
    from agent.collectors import Value
    from agent.driver import Driver, Gpu


@dataclass
class UtilizationMeter:
    """Drains the rings of one GPU and turns them into the utilization columns of an interval."""

    gpu_time: Timeline = field(default_factory=Timeline)
    mem_time: Timeline = field(default_factory=Timeline)
    source: str = "none"

    def drain(self, driver: Driver, gpu: Gpu, now_us: int) -> None:
        """Takes what is new; to be called at least every five seconds. Raises GpuGoneError and DriverGoneError."""
        samples = driver.ask_ring(gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self.gpu_time.last_seen_us)
        memory = driver.ask_ring(gpu, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, self.mem_time.last_seen_us)
        for timeline, found in ((self.gpu_time, samples), (self.mem_time, memory)):
            timeline.begin(now_us)
            timeline.add_samples(found or (), now_us)
        rates = None
        if self.gpu_time.behind(now_us) or self.mem_time.behind(now_us):
            rates = driver.ask(gpu, pynvml.nvmlDeviceGetUtilizationRates)
        if rates is not None:
            _fill(self.gpu_time, rates.gpu, now_us, ring=samples is not None)
            _fill(self.mem_time, rates.memory, now_us, ring=memory is not None)
        if samples is not None:
            self.source = "samples"
        else:
            self.source = "none" if rates is None else "rates"

    @property
    def wants_every_second(self) -> bool:
        """Whether only the short averages are there, which see the more the more often they are read."""
        return self.source == "rates"

    def take(self, start_us: int, end_us: int) -> dict[str, Value]:
        """The utilization columns of the interval."""
        busy, memory = self.gpu_time.take(start_us, end_us), self.mem_time.take(start_us, end_us)
        return {
            "util_source": self.source,
            "gpu_util_pct": _rounded(busy.mean_pct, 2),
            "gpu_util_max_pct": busy.max_pct,
            "gpu_util_zero_ratio": _rounded(busy.zero_ratio, 4),
            "gpu_util_coverage_ratio": _rounded(busy.coverage_ratio, 4),
            "gpu_util_unsampled_ratio": _rounded(busy.unsampled_ratio, 4),
            "mem_util_pct": _rounded(memory.mean_pct, 2),
        }


def _fill(timeline: Timeline, rate: int, now_us: int, *, ring: bool) -> None:
    """Adds what a rate says of the time since the newest sample."""
    if not timeline.behind(now_us):
        return
    if ring and rate == 0:
        timeline.add_idle(now_us)
    else:
        # no ring, or a ring and a rate that contradict each other: only what the rate itself covers is known
        timeline.add_rate(rate, now_us)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
