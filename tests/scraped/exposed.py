"""What an exporter exposed: single samples, the text pages that hold them, and the values that a lake holds of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from fallow import parquet, schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.scraped.samples import Labels
    from fallow.lake import Lake

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, order=True)
class Exposed:
    """One sample; `labels` sorted, without the name. A value of None ends the series: a staleness marker."""

    name: str
    labels: Labels
    value: float | None
    time_ms: int = 0

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")

    def labelled(self, **labels: str) -> Exposed:
        """The same with these labels instead; an empty one takes the label away."""
        merged = dict(self.labels) | labels
        return replace(self, labels=tuple(sorted((name, value) for name, value in merged.items() if value)))


def parsed(page: str) -> tuple[Exposed, ...]:
    """The samples of a page in Prometheus' text format, in its order."""
    found = (_LINE.match(line) for line in page.splitlines() if line and not line.startswith("#"))
    return tuple(
        Exposed(match["name"], tuple(sorted(_LABEL.findall(match["labels"] or ""))), float(match["value"]))
        for match in found
        if match
    )


def page_of(samples: Iterable[Exposed]) -> str:
    """A page in Prometheus' text format, without times: what an exporter answers."""
    return "".join(f"{_series(sample)} {_number(sample.value)}\n" for sample in samples if sample.value is not None)


def _series(sample: Exposed) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels)
    return f"{sample.name}{{{labels}}}" if labels else sample.name


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "NaN"
    return repr(value) if value != int(value) else str(int(value))


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


RECORDED = Path(__file__).parent / "recorded"


def recorded_labels(exporter: str, **added: str) -> list[Labels]:
    """One entry for each series of `recorded/EXPORTER.prom`."""
    page = (RECORDED / f"{exporter}.prom").read_text(encoding="utf-8")
    target = {"job": exporter, "instance": "10.0.0.7:9400"} | added
    return [{"__name__": sample.name, **dict(sample.labels), **target} for sample in parsed(page)]
