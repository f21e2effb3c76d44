"""Utilization of one GPU, from the sample ring, GPM, or the driver's own short averages, never from a mixture.

Mean, maximum, percentile and share at zero describe one quantity. From two sources they could contradict each other: a
mean above the maximum, or work in time that counts as zero.

GPM gives averages between two samples that the GPU itself measures (Hopper and newer), of whole GPUs and MIG instances.
A sample costs one round trip to the GPU. Two buffers per GPU are swapped at every interval. The averages cover the time
between the two samples, which is a little later than the interval's own grid: the row's `offset_ms` is that distance.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pynvml

from agent.nvml.readings import Clocks, CollectedSpan, GpuCollector
from agent.nvml.ring import PERIOD_US, RING_US, Timeline, Utilization

if TYPE_CHECKING:
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import DriverGpu
    from agent.rows import GpuRow

WHOLE = 0.98
"""From this coverage on, a source covers the whole interval."""

_SEEN_PCT = 0.5
"""The ring's whole percents show a mean of at least this value; below it, all samples may be 0."""
_ROUNDING_PCT = 1.0

_UTILIZATION = (
    "util_source",
    "offset_ms",
    "gpu_util_pct",
    "gpu_util_max_pct",
    "gpu_util_p98_pct",
    "gpu_util_zero_ratio",
    "gpu_util_coverage_ratio",
    "gpu_util_unsampled_ratio",
)


def rounded_up(pct: float) -> float:
    """Return a percentage with two digits, but never 0, which means that nothing ran at all."""
    return max(round(pct, 2), 0.01) if pct > 0 else 0.0


def with_gpm(row: GpuRow, gpm: GpuRow) -> GpuRow:
    """Return the row with GPM's columns, and its utilization from one source.

    The ring is the source where it covers the whole interval, because only it has a maximum and a percentile. GPM is
    the source elsewhere, and where GPM measured work in time that the ring counts as idle. A mean alone leaves the
    other columns unknown, unless it is 0.
    """
    if gpm.get("gpu_util_pct") is None:
        return row | gpm
    if row.get("util_source") == "samples":
        if _saw_all(row) and not _denies(row, gpm):
            beside = {name: value for name, value in gpm.items() if name not in _UTILIZATION}
            return row | beside  # type: ignore[return-value]  # columns of the same row
        return row | _alone(gpm)
    return row | {"mem_util_pct": None} | _alone(gpm)


def _alone(gpm: GpuRow) -> GpuRow:
    nothing: GpuRow = {
        "gpu_util_max_pct": None,
        "gpu_util_p98_pct": None,
        "gpu_util_zero_ratio": None,
        "gpu_util_unsampled_ratio": None,
    }
    if gpm.get("gpu_util_pct") == 0:  # an average of 0 implies a maximum of 0
        nothing |= {"gpu_util_max_pct": 0, "gpu_util_p98_pct": 0, "gpu_util_zero_ratio": 1.0}
    return nothing | gpm


def _saw_all(row: GpuRow) -> bool:
    return (row.get("gpu_util_coverage_ratio") or 0.0) >= WHOLE


def _denies(ring: GpuRow, gpm: GpuRow) -> bool:
    """Return whether GPM measured more work than the ring allows, apart from the shift between their spans."""
    seen_pct, mean_pct = gpm.get("gpu_util_pct") or 0.0, ring.get("gpu_util_pct") or 0.0
    if not ring.get("gpu_util_max_pct"):
        return seen_pct >= _SEEN_PCT
    shifted = 2 * abs(gpm.get("offset_ms") or 0) / ring["interval_ms"]
    return seen_pct - mean_pct > 100 * shifted + _ROUNDING_PCT


_CLOCK_STEP_US = 200_000  # more than the wall clock is ever adjusted gradually between two drains


@dataclass
class UtilizationMeter(GpuCollector):
    """Drains the ring of one GPU and computes the utilization columns of an interval."""

    name = "utilization"

    gpu_time: Timeline = field(default_factory=Timeline)
    mem_time: Timeline = field(default_factory=Timeline)
    source: str = "none"
    _drained: tuple[int, int] | None = None
    _spared: bool = False
    """Whether only GPM covered the whole last interval."""

    def settle(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> None:
        """Drain at the end of an interval, so that the samples cover it. Raises as `drain` does.

        A GPU that has just begun to work has a rate but no sample yet; a period later it has a sample.
        """
        if self.drain(driver, gpu, clocks):
            time.sleep(1.2 * PERIOD_US / 1_000_000)
            self.drain(driver, gpu, clocks)

    def drain(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> bool:
        """Read the new samples. Return whether a sample must be unfinished, by the rate.

        Call it at least every five seconds. Raises GpuGoneError and DriverGoneError.
        """
        asked = clocks()
        samples = driver.ask_ring(gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self.gpu_time.last_seen_us)
        memory = driver.ask_ring(gpu, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, self.mem_time.last_seen_us)
        answered = clocks()  # read after the calls, which may have taken long: no sample can be newer
        now_us = answered[0]
        watched_us, in_time = self._since_last(asked, answered)
        understood = []
        for timeline, found in ((self.gpu_time, samples), (self.mem_time, memory)):
            understood.append(found is not None and timeline.add_samples(found, now_us, in_time=in_time))
            timeline.begin(now_us)  # a ring may hold samples from before this worker
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
        # an empty ring with a rate above 0: the utilization is unknown until the next sample
        return samples is not None and rates.gpu > 0 and self.gpu_time.behind(now_us)

    def _since_last(self, asked: tuple[int, int], answered: tuple[int, int]) -> tuple[int, bool]:
        """Return the time since the last drain, and whether the ring surely holds all samples since then."""
        before, self._drained = self._drained, asked
        if before is None:
            return 0, False
        wall_us, steady_us = answered[0] - before[0], answered[1] - before[1]
        step_us = wall_us - steady_us
        if abs(step_us) <= _CLOCK_STEP_US:
            return steady_us, steady_us < RING_US
        self._drained = answered  # so that a clock step during the calls counts once
        for timeline in (self.gpu_time, self.mem_time):
            timeline.step(step_us, answered[0])
        return steady_us, False

    @property
    def wants_every_second(self) -> bool:
        """Return whether the short averages are the source: no ring, and GPM does not cover the whole interval."""
        return self.source == "rates" and not self._spared

    def hear(self, row: GpuRow) -> None:
        self._spared = row.get("util_source") == "gpm" and _saw_all(row)

    def forget(self) -> None:
        self.source, self._spared = "none", False

    def collect(self, _driver: Driver, _gpu: DriverGpu, span: CollectedSpan) -> GpuRow:
        return self.take(span.start_us, span.end_us)

    def take(self, start_us: int, end_us: int) -> GpuRow:
        busy, memory = self.gpu_time.take(start_us, end_us), self.mem_time.take(start_us, end_us)
        zero_ratio = busy.zero_ratio
        if zero_ratio is not None:  # 1 only where the whole time was at zero
            zero_ratio = min(round(zero_ratio, 4), 0.9999) if zero_ratio < 1 else 1.0
        return {
            "util_source": self.source,
            "gpu_util_pct": _mean(busy),
            "gpu_util_max_pct": busy.max_pct,
            "gpu_util_p98_pct": busy.p98_pct,
            "gpu_util_zero_ratio": zero_ratio,
            "gpu_util_coverage_ratio": round(busy.coverage_ratio, 4),
            "gpu_util_unsampled_ratio": round(busy.unsampled_ratio, 4),
            "mem_util_pct": _mean(memory),
        }


def _explain_silence(timeline: Timeline, rate: int, now_us: int, watched_us: int) -> None:
    """Interpret a ring without newer samples by the driver's rate: the GPU is idle, or its state is not known yet."""
    if timeline.behind(now_us):
        if rate == 0:
            timeline.add_idle(now_us, watched_us=watched_us)
        else:
            timeline.doubt(now_us)


def _mean(found: Utilization) -> float | None:
    return None if found.mean_pct is None else rounded_up(found.mean_pct)


_PERCENT = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: "gpu_util_pct",
    pynvml.NVML_GPM_METRIC_SM_UTIL: "sm_active_pct",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy_pct",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active_pct",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_active_pct",
    pynvml.NVML_GPM_METRIC_FP64_UTIL: "fp64_active_pct",
    pynvml.NVML_GPM_METRIC_FP32_UTIL: "fp32_active_pct",
    pynvml.NVML_GPM_METRIC_FP16_UTIL: "fp16_active_pct",
}
_MIB_PER_S = {
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: "pcie_tx_bytes_per_s",
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: "pcie_rx_bytes_per_s",
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: "nvlink_tx_bytes_per_s",
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: "nvlink_rx_bytes_per_s",
}
_METRICS = (*_PERCENT, *_MIB_PER_S)

_MOST_PCT = 101.0  # a larger excess than the rounding of the GPU's counters is noise
_OTHER_LENGTH = 0.2  # a span that differs from its interval by more than this share describes something else


class GpmMeter(GpuCollector):
    """The averages of one GPU or MIG instance between samples at the ends of intervals."""

    name = "gpm"
    of_instances = True

    def __init__(self) -> None:
        self._supported: bool | None = None
        self._request: Any = None
        self._older: Any = None
        self._newer: Any = None
        self._taken: tuple[int, int] | None = None
        """The time of the newer sample, on both clocks."""

    def mark(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> bool:
        """Take the sample that begins the next averages. Return whether there is one. Raises as `Driver.ask` does."""
        if self._request is None and not self._prepare(driver, gpu):
            return False
        self._older, self._newer = self._newer, self._older
        if gpu.parent is None:
            done = driver.ask_with(gpu, pynvml.nvmlGpmSampleGet, gpu.handle, self._newer)
        else:
            done = driver.ask_with(gpu, pynvml.nvmlGpmMigSampleGet, gpu.parent.handle, gpu.gpu_instance_id, self._newer)
        self._taken = clocks() if done is not None else None
        return done is not None

    def drain(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> None:
        if gpu.rows == 0:  # the first averages begin at the drain nearest to the first interval
            self.mark(driver, gpu, clocks)

    def collect(self, driver: Driver, gpu: DriverGpu, span: CollectedSpan) -> GpuRow:
        """Return columns of the interval with `offset_ms` and coverage; empty where they are unknown."""
        if gpu.split:  # the driver has no utilization of the whole GPU, only of its instances
            return {}
        before, start_us, end_us = self._taken, span.start_us, span.end_us
        if not self.mark(driver, gpu, span.clocks) or before is None or self._taken is None:
            return {}
        span_us, length_us = self._taken[1] - before[1], end_us - start_us
        if abs(span_us - length_us) > _OTHER_LENGTH * length_us:
            return {}
        columns = self._columns(driver, gpu)
        if columns.get("gpu_util_pct") is None:
            return columns
        begun_us = self._taken[0] - span_us
        return columns | {
            "util_source": "gpm",
            "offset_ms": (begun_us - start_us) // 1000,
            "gpu_util_coverage_ratio": round(min(1.0, span_us / length_us), 4),
        }

    def forget(self) -> None:
        self._taken = None

    def _prepare(self, driver: Driver, gpu: DriverGpu) -> bool:
        """Allocate the buffers and the request of 19 kB, once. Return whether they exist."""
        if self._supported is False:
            return False
        answer = driver.ask(gpu.parent or gpu, pynvml.nvmlGpmQueryDeviceSupport)
        self._supported = None if answer is None else bool(answer.isSupportedDevice)  # a sample may still fail
        if not self._supported:
            return False
        samples = [driver.ask_with(gpu, pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
        if None in samples:
            return False
        self._older, self._newer = samples
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        for position, metric in enumerate(_METRICS):
            request.metrics[position].metricId = metric
        self._request = request
        return True

    def _columns(self, driver: Driver, gpu: DriverGpu) -> GpuRow:
        self._request.sample1, self._request.sample2 = self._older, self._newer
        if driver.ask_with(gpu, pynvml.nvmlGpmMetricsGet, self._request) is None:
            return {}
        columns: dict[str, float] = {}
        for position, metric in enumerate(_METRICS):
            found = self._request.metrics[position]
            value = found.value
            if found.nvmlReturn or not math.isfinite(value) or value < 0:
                continue  # NaN means unknown
            if metric in _MIB_PER_S:
                columns[_MIB_PER_S[metric]] = round(value * 2**20)
            elif value <= _MOST_PCT:
                columns[_PERCENT[metric]] = rounded_up(min(value, 100.0))
        return cast("GpuRow", columns)
