"""Inventory rows of imported GPUs: one per GPU and UTC day, as the agent writes them daily."""

from __future__ import annotations

import polars as pl

from fallow.schema import DEVICE

_FACTS = tuple(column.name for column in DEVICE.columns if column.name not in ("time", "gpu", "source"))


def daily_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """From samples (time, gpu, and any of the device columns), one row per GPU and day at its first sample's time.

    Each fact is the last one that was seen on that day.
    """
    facts = [name for name in _FACTS if name in frame.columns]
    return (
        frame.sort("time")
        .group_by("gpu", pl.col("time").dt.date().alias("day"), maintain_order=True)
        .agg(pl.col("time").first(), *(pl.col(name).drop_nulls().last() for name in facts))
        .drop("day")
        .with_columns(source=pl.lit("import"))
    )
