"""The inventory that labels and metrics tell of: a row for each GPU and day."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from analytics.importers.values import polars_schema
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.mapping.series_labels import gpu_of
from analytics.scraped.rows.metric_frame import SampleArrays
from analytics.scraped.rows.scraped_units import ScrapedUnit, ScrapedUnits
from analytics.scraped.samples import Labels
from fallow.clock import DAY_MS
from fallow.schema import DEVICE

_SLICES = re.compile(r"(\d+)g\.")
_TYPES = polars_schema(DEVICE)
DEVICE_PREFIX = "device."
"""Of columns of `device` in frames of rows."""


def device_facts(labels: Sequence[Labels], found: ScrapedUnits, samples: SampleArrays) -> pl.DataFrame:
    """What labels say of each GPU (gpu, since_ms, columns of `device`), a row from each series on that says something else."""
    first_metric: dict[int, int] = {}
    for parts in found.parts.values():
        for part in parts:
            first_metric.setdefault(found.unit_of[part.series], part.metric)
    units = tuple(found.units)
    facts = [
        {"gpu": unit.gpu, "since_ms": int(samples.time_ms[samples.first[part.series]]), **_said(labels[part.series], unit, exporter)}
        for name, exporter in found.exporters.items()
        for part in found.parts[name]
        for unit in [units[found.unit_of[part.series]]]
        if unit.gpu and part.metric == first_metric[found.unit_of[part.series]]
        and samples.first[part.series] < samples.first[part.series + 1]
    ]  # fmt: skip
    told = pl.DataFrame(
        facts, schema={"gpu": pl.String(), "since_ms": pl.Int64(), **dict.fromkeys(_TYPES, pl.String())} | _GIVEN
    )
    return told.sort("gpu", "since_ms").select(
        "gpu",
        "since_ms",
        *(pl.col(name).forward_fill().over("gpu").cast(_TYPES[name], strict=False) for name in _FACTS),
    )


_FACTS = tuple(name for name in _TYPES if name not in ("time", "gpu", "source"))
_GIVEN: dict[str, pl.DataType] = {"mig_enabled": pl.Boolean(), "mig_gpu_slices": pl.Int64()}


def _said(labels: Labels, unit: ScrapedUnit, exporter: Exporter) -> dict[str, object]:
    said: dict[str, object] = {column: exporter.labelled(labels, names) or None for column, names in exporter.device}
    if not unit.parent:
        return said | {"gpu_index": gpu_of(labels, exporter).index or None}
    slices = _SLICES.search(str(said.get("mig_profile")))
    return said | {"parent_gpu": unit.parent, "mig_gpu_slices": int(slices[1]) if slices else None}


def device_rows(gpus: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Rows of `device` and their `host`, from rows of GPUs (host, gpu, time_ms, columns behind DEVICE_PREFIX) and facts."""
    measured = [name for name in gpus.columns if name.startswith(DEVICE_PREFIX)]
    days = gpus.group_by("host", "gpu", day=pl.col("time_ms") // DAY_MS).agg(
        pl.col("time_ms").min(), *(pl.col(name).drop_nulls().last() for name in measured)
    )
    days = days.with_columns(until_ms=(pl.col("day") + 1) * DAY_MS).sort("gpu", "until_ms")
    found = days.join_asof(facts, left_on="until_ms", right_on="since_ms", by="gpu", check_sortedness=False)
    parents = facts["parent_gpu"].drop_nulls().unique()
    own = (name.removeprefix(DEVICE_PREFIX) for name in measured)
    return found.with_columns(
        time=pl.from_epoch("time_ms", time_unit="ms").cast(_TYPES["time"]),
        source=pl.lit("import"),
        mig_enabled=pl.when(pl.col("gpu").is_in(parents.implode())).then(pl.lit(value=True)).otherwise("mig_enabled"),
        **{name: pl.col(DEVICE_PREFIX + name).cast(_TYPES[name], strict=False) for name in own},
    ).select("host", *_TYPES)
