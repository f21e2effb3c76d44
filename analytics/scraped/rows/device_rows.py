"""The inventory that labels and metrics tell of: a row for each GPU and day."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl

from analytics.importers.values import polars_schema
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.mapping.series_labels import gpu_of
from analytics.scraped.rows.metric_frame import SampleArrays
from analytics.scraped.rows.scraped_units import ScrapedUnit, ScrapedUnits
from analytics.scraped.samples import Labels, first_label
from fallow.clock import DAY_MS
from fallow.schema import DEVICE

_SLICES = re.compile(r"(\d+)g\.")
_TYPES = polars_schema(DEVICE)
DEVICE_PREFIX = "device."
"""Of columns of `device` in frames of rows."""


def device_facts(labels: Sequence[Labels], found: ScrapedUnits, samples: SampleArrays) -> pl.DataFrame:
    """What labels say of each GPU (gpu, since_ms, columns of `device`), a row from each series on that says something else."""
    units = tuple(found.units)
    words = {
        name: [label for _, known in exporter.device for label in known] + list(exporter.index)
        for name, exporter in found.exporters.items()
    }
    first_ms: dict[tuple[int, tuple[str | None, ...]], tuple[int, int]] = {}
    for series, unit in found.unit_of.items():
        if units[unit].gpu and samples.first[series] < samples.first[series + 1]:
            said = (unit, tuple(map(labels[series].get, words[units[unit].source[0]])))
            since = (int(samples.time_ms[samples.first[series]]), series)
            first_ms[said] = min(since, first_ms.get(said, since))
    facts = [
        {"since_ms": since_ms} | said
        for (unit, _), (since_ms, series) in first_ms.items()
        for said in _said(labels[series], units[unit], found.exporters[units[unit].source[0]])
    ]
    told = pl.DataFrame(
        facts, schema={"gpu": pl.String(), "since_ms": pl.Int64(), **dict.fromkeys(_TYPES, pl.String())} | _GIVEN
    )
    return told.sort("gpu", "since_ms").select(
        "gpu",
        "since_ms",
        *(pl.col(name).forward_fill().over("gpu").cast(_TYPES[name], strict=False) for name in _FACTS),
    )


_FACTS = tuple(name for name in _TYPES if name not in ("time", "gpu", "source"))
_OF_INSTANCES = ("mig_profile", "gpu_instance_id")
_GIVEN: dict[str, pl.DataType] = {"mig_enabled": pl.Boolean(), "mig_gpu_slices": pl.Int64()}


def _said(labels: Labels, unit: ScrapedUnit, exporter: Exporter) -> Iterator[dict[str, object]]:
    """What one series says of its GPU; of a MIG instance and of the GPU that it is a part of."""
    said: dict[str, object] = {column: first_label(labels, names) or None for column, names in exporter.device}
    if unit.parent:
        slices = _SLICES.search(str(said.get("mig_profile")))
        own = {"gpu": unit.gpu, "parent_gpu": unit.parent, "mig_gpu_slices": int(slices[1]) if slices else None}
        yield said | own
        said = {name: value for name, value in said.items() if name not in _OF_INSTANCES} | {"mig_enabled": True}
    yield said | {"gpu": unit.parent or unit.gpu, "gpu_index": gpu_of(labels, exporter).index or None}


def device_rows(gpus: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Rows of `device` and their `host`, from rows of GPUs (host, gpu, time_ms, columns behind DEVICE_PREFIX) and facts."""
    measured = [name for name in gpus.columns if name.startswith(DEVICE_PREFIX)]
    days = gpus.group_by("host", "gpu", day=pl.col("time_ms") // DAY_MS).agg(
        pl.col("time_ms").min(), *(pl.col(name).drop_nulls().last() for name in measured)
    )
    days = days.with_columns(until_ms=(pl.col("day") + 1) * DAY_MS).sort("gpu", "until_ms")
    found = days.join_asof(facts, left_on="until_ms", right_on="since_ms", by="gpu", check_sortedness=False)
    own = (name.removeprefix(DEVICE_PREFIX) for name in measured)
    return found.with_columns(
        time=pl.from_epoch("time_ms", time_unit="ms").cast(_TYPES["time"]),
        source=pl.lit("scraped"),
        **{name: pl.col(DEVICE_PREFIX + name).cast(_TYPES[name], strict=False) for name in own},
    ).select("host", *_TYPES)
