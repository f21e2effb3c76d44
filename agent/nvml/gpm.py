"""GPM: averages that the GPU itself keeps between two samples (Hopper and newer), of whole GPUs and MIG instances.

A sample costs one round trip to the GPU. Two buffers of the driver's are kept per GPU and swapped at every interval; the
averages reach from the moment of the older sample to that of the newer, which is a little after the interval's own
grid: the row's `offset_ms` says how much.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import pynvml

from agent.nvml.collector import Clocks, CollectedSpan, GpuCollector
from agent.nvml.util_source import rounded_up

if TYPE_CHECKING:
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import DriverGpu
    from agent.rows import GpuRow

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

_MOST_PCT = 101.0  # rounding of the GPU's counters; more than that is noise
_OTHER_LENGTH = 0.2  # a span that differs from its interval by more than this share describes something else


def read_support(driver: Driver, gpu: DriverGpu) -> bool | None:
    """Whether the driver says that the GPU has GPM; a sample may still fail. Raises as `Driver.ask` does."""
    answer = driver.ask(gpu, pynvml.nvmlGpmQueryDeviceSupport)
    return None if answer is None else bool(answer.isSupportedDevice)


class GpmMeter(GpuCollector):
    """The averages of one GPU or MIG instance from one interval to the next."""

    name = "gpm"
    of_instances = True

    def __init__(self) -> None:
        self._supported: bool | None = None
        self._request: Any = None
        self._older: Any = None
        self._newer: Any = None
        self._taken: tuple[int, int] | None = None
        """When the newer sample was taken, on both clocks."""

    def mark(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> bool:
        """Takes the sample that the next averages begin at; whether there is one. Raises as `Driver.ask` does."""
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
        if gpu.rows == 0:  # the first averages begin as near to the first interval as there is a drain
            self.mark(driver, gpu, clocks)

    def collect(self, driver: Driver, gpu: DriverGpu, span: CollectedSpan) -> GpuRow:
        """Columns of the interval with `offset_ms` and coverage; empty where nothing is known."""
        if gpu.split:  # the driver has no utilization of the whole: it is that of its instances
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
        """Allocates the buffers and the request of 19 kB, once."""
        if self._supported is False:
            return False
        self._supported = read_support(driver, gpu.parent or gpu)
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
                continue  # NaN is the driver's word for unknown
            if metric in _MIB_PER_S:
                columns[_MIB_PER_S[metric]] = round(value * 2**20)
            elif value <= _MOST_PCT:
                columns[_PERCENT[metric]] = rounded_up(min(value, 100.0), 2)
        return cast("GpuRow", columns)
