"""Utilization of one GPU, by the best source that it has: the sample ring, else the driver's own short averages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pynvml

from agent.ring import RING_US, Timeline

if TYPE_CHECKING:
    from agent.collectors import Value
    from agent.driver import Driver, Gpu

_CLOCK_STEP_US = 200_000  # more than the wall clock is ever slewed between two drains


class Clocks(Protocol):
    """The wall clock and a clock that never steps, both in microseconds."""

    def __call__(self) -> tuple[int, int]:
        """Both now."""
        ...


@dataclass
class UtilizationMeter:
    """Drains the rings of one GPU and turns them into the utilization columns of an interval."""

    gpu_time: Timeline = field(default_factory=Timeline)
    mem_time: Timeline = field(default_factory=Timeline)
    source: str = "none"
    _drained: tuple[int, int] | None = None

    def drain(self, driver: Driver, gpu: Gpu, clocks: Clocks) -> None:
        """Takes what is new; to be called at least every five seconds. Raises GpuGoneError and DriverGoneError."""
        asked = clocks()
        samples = driver.ask_ring(gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self.gpu_time.last_seen_us)
        memory = driver.ask_ring(gpu, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, self.mem_time.last_seen_us)
        answered = clocks()  # after calls that may have taken long: no sample can be newer
        now_us = answered[0]
        watched_us, in_time = self._since_last(asked, answered)
        understood = []
        for timeline, found in ((self.gpu_time, samples), (self.mem_time, memory)):
            timeline.begin(now_us)
            understood.append(found is not None and timeline.add_samples(found, now_us, in_time=in_time))
        rates = None
        if samples is None or self.gpu_time.behind(now_us) or self.mem_time.behind(now_us):
            rates = driver.ask(gpu, pynvml.nvmlDeviceGetUtilizationRates)
        if rates is not None:
            for timeline, ring, rate in (
                (self.gpu_time, understood[0], rates.gpu),
                (self.mem_time, understood[1], rates.memory),
            ):
                _fill(timeline, rate, now_us, idle=ring and rate == 0, watched_us=watched_us)
        if samples is not None:
            self.source = "samples"
        else:
            self.source = "none" if rates is None else "rates"

    def _since_last(self, asked: tuple[int, int], answered: tuple[int, int]) -> tuple[int, bool]:
        """How long ago the drain before was asked for, and whether the ring surely holds everything since then."""
        before, self._drained = self._drained, asked
        if before is None:
            return 0, False
        wall_us, steady_us = answered[0] - before[0], answered[1] - before[1]
        stepped = abs(wall_us - steady_us) > _CLOCK_STEP_US
        return steady_us, steady_us < RING_US and not stepped

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


def _fill(timeline: Timeline, rate: int, now_us: int, *, idle: bool, watched_us: int) -> None:
    """Adds what a rate says of the time since the newest sample."""
    if not timeline.behind(now_us):
        return
    if idle:
        timeline.add_idle(now_us, watched_us=watched_us)
    else:
        # no ring, or a ring and a rate that contradict each other: only what the rate itself covers is known
        timeline.add_rate(rate, now_us)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
