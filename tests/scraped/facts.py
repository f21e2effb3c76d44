"""Single values by GPU, moment and column: what samples say, and what a lake holds. Two sets of them are equal or they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from fallow import parquet, schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fallow.lake import Lake
    from tests.scraped.exposed import Exposed

MIB = 2**20
# of metrics that fill one column the last one counts where several have a value
DCGM: Mapping[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_util_pct", 1),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gpu_util_pct", 100),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("mem_util_pct", 1),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_pct", 100),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_pct", 100),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_pct", 100),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_s", 1),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_s", 1),
    "DCGM_FI_DEV_FB_USED": ("mem_used_bytes", MIB),
    "DCGM_FI_DEV_FB_RESERVED": ("mem_reserved_bytes", MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_mj", 1),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1),
    "DCGM_FI_DEV_MEMORY_TEMP": ("mem_temperature_c", 1),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1),
    "DCGM_FI_DEV_MEM_CLOCK": ("mem_clock_mhz", 1),
}
"""Metric, and the column of `gpu` that it fills, by which factor."""

NVITOP: Mapping[str, tuple[str, float]] = {
    "gpu_utilization_Percentage": ("gpu_util_pct", 1),
    "gpu_memory_utilization_Percentage": ("mem_util_pct", 1),
    "gpu_memory_used_MiB": ("mem_used_bytes", MIB),
    "gpu_power_usage_W": ("power_w", 1),
    "gpu_temperature_C": ("temperature_c", 1),
    "gpu_clock_sm_MHz": ("sm_clock_mhz", 1),
    "gpu_clock_memory_MHz": ("mem_clock_mhz", 1),
}


class Fact(NamedTuple):
    """`value` in the column's unit, to a thousandth: scripts say no more than a float32 holds."""

    gpu: str
    time_ms: int
    column: str
    value: float


def facts_of(samples: Iterable[Exposed], columns: Mapping[str, tuple[str, float]]) -> list[Fact]:
    """Every sample of these metrics, as the column that it fills."""
    rank = {name: number for number, name in enumerate(columns)}
    found: dict[tuple[str, int, str], float] = {}
    for sample in sorted((each for each in samples if each.name in columns), key=lambda each: rank[each.name]):
        column, factor = columns[sample.name]
        assert sample.value is not None
        found[_gpu(sample), sample.time_ms, column] = sample.value * factor
    return sorted(Fact(*key, round(value, 3)) for key, value in found.items())


def facts_in(lake: Lake, columns: Mapping[str, tuple[str, float]]) -> list[Fact]:
    """Every value that the lake's rows have in these columns; one that is there twice comes twice."""
    names = sorted({column for column, _ in columns.values()})
    read = pl.from_arrow(parquet.read(lake.files("gpu"), schema.GPU))
    assert isinstance(read, pl.DataFrame)
    moment = pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)
    values = read.select("gpu", moment.alias("time_ms"), *(pl.col(name).cast(pl.Float64) for name in names))
    return sorted(
        Fact(gpu, time_ms, column, round(value, 3))
        for gpu, time_ms, column, value in values.unpivot(index=["gpu", "time_ms"]).drop_nulls("value").iter_rows()
    )


def _gpu(sample: Exposed) -> str:
    """A MIG instance is named by its card and its number there."""
    card, instance = sample.label("UUID") or sample.label("uuid"), sample.label("GPU_I_ID")
    return f"MIG-{card}/{instance}" if instance else card
