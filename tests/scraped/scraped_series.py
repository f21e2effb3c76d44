"""Series as a metrics server keeps them, from a line each: what a test writes down is what `host_rows` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.importers.model import Imported
from analytics.importers.publish import publish
from analytics.mapping.mapping_file import load_exporters
from analytics.scraped.rows.model import RowSettings
from analytics.scraped.rows.scraped_rows import host_rows
from analytics.scraped.samples import SAMPLE_SCHEMA, Samples
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fallow.lake import Lake

Series = tuple[dict[str, str], list[tuple[int, float | None]]]
UTIL, POWER, ENERGY, MEMORY, ENGINE = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)
XID = "DCGM_FI_DEV_XID_ERRORS"
EXPORTERS = load_exporters()


def uuid(number: int) -> str:
    return f"GPU-0000000{number}"


def dcgm(
    metric: str, values: Sequence[float | None], *, every_s: float = 30, start_s: float = 0, gpu: int = 0, **labels: str
) -> Series:
    """A series of dcgm-exporter on gn01; None is a staleness marker; for samples that are absent see `without`."""
    said = {"__name__": metric, "UUID": uuid(gpu), "gpu": str(gpu), "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": "gn01", "instance": "10.0.0.1:9400", "job": "dcgm"} | labels  # fmt: skip
    step = round(every_s * 1000)
    return said, [(T0 + round(start_s * 1000) + number * step, value) for number, value in enumerate(values)]


def without(series: Series, since_s: float, until_s: float) -> Series:
    """The series without the samples of some time: nobody scraped, and nobody wrote a marker."""
    labels, told = series
    return labels, [(at, value) for at, value in told if not T0 + since_s * 1000 <= at < T0 + until_s * 1000]


def samples_of(series: Sequence[Series]) -> Samples:
    rows = [(number, at, value) for number, (_, told) in enumerate(series) for at, value in told]
    return Samples(tuple(labels for labels, _ in series), pl.DataFrame(rows, SAMPLE_SCHEMA, orient="row"))


def rows_of(*series: Series, hours: float = 24, collect_s: float | None = None) -> dict[str, Imported]:
    """The rows of each host."""
    settings = RowSettings(T0, T0 + round(hours * 3_600_000), None if collect_s is None else round(collect_s * 1000))
    return {found.host: found for found in host_rows(samples_of(series), EXPORTERS, settings)}


def one_host(*series: Series, hours: float = 24, collect_s: float | None = None) -> Imported:
    (found,) = rows_of(*series, hours=hours, collect_s=collect_s).values()
    return found


def columns(found: Imported, *names: str, gpu: int | str = 0) -> list[tuple[object, ...]]:
    """Seconds after T0 and some columns of a GPU's rows."""
    own = found.gpu.filter(pl.col("gpu") == (gpu if isinstance(gpu, str) else uuid(gpu)))
    at = (pl.col("time").dt.epoch("ms") + pl.col("offset_ms") - T0) / 1000
    return own.select(at, *(names or ("gpu_util_pct",))).rows()


def counts(found: Imported) -> Mapping[tuple[str, str], int]:
    return {(each.reason, each.column): each.count for file in found.files for each in (*file.dropped, *file.nulled)}


def lake_with(lake: Lake, *found: Imported) -> Lake:
    """The lake with the rows, published as every import is."""
    for each in found:
        publish(lake, Imported(each.host, each.gpu, each.device, (), "as scraped", "UTC"))
    return lake
