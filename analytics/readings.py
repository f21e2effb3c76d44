"""What one GPU's rows said over a time, for looking at: as they are, or as the least, mean and most of each bin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.capacity.concurrency import lasting_on
from analytics.frames import read_frame
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, utc_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fallow.lake import Lake

READINGS = ("gpu_util_pct", "sm_active_pct", "mem_used_bytes", "power_w")
_MOST = {"gpu_util_pct": 100.5, "sm_active_pct": 100.5}
"""An average that the GPU keeps itself may lie a hair above 100; what lies further is no measurement."""
_MOST_OF_ALL = 1e15


def gpu_readings(lake: Lake, gpu: str, hosts: Iterable[str], since_ms: int, until_ms: int) -> pl.DataFrame:
    """The GPU's rows that begin inside the time: `time`, `interval_ms` and READINGS, sorted; null is unknown.

    Only the files of its hosts and days are opened, and one at a time. A value that cannot be is unknown, and of two rows
    for one moment one counts. Raises LakeError and its kinds.
    """
    names = ("time", "gpu", "interval_ms", *READINGS)
    dates = [utc_day(day_ms) for day_ms in range(floor_ms(since_ms, DAY_MS), until_ms, DAY_MS)]
    mine = (pl.col("gpu") == gpu) & (pl.col("time") >= since_ms) & (pl.col("time") < until_ms)
    parts = [
        read_frame([file], schema.GPU, names).filter(mine).select("time", "interval_ms", *map(_known, READINGS))
        for file in lake.files("gpu", hosts=hosts, dates=dates)
    ]
    if not parts:
        return pl.DataFrame(
            schema=dict.fromkeys(("time", "interval_ms"), pl.Int64) | dict.fromkeys(READINGS, pl.Float64)
        )
    return pl.concat(parts).sort("time").unique("time", keep="first", maintain_order=True)


def _known(name: str) -> pl.Expr:
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    return pl.when((value >= 0) & (value <= _MOST.get(name, _MOST_OF_ALL))).then(value).alias(name)


def only_during(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The rows whose whole interval lies in the spans (ledger stretches): what somebody else had is not in it.

    Args:
        rows: `time` and `interval_ms`, sorted by time.
        spans: `time`, `end`, `gpu` and `gpu_share`; those of several GPUs count together.
    """
    own = lasting_on(spans.with_columns(gpu=pl.lit("any")), 0).select(from_ms="time", to_ms="end").sort("from_ms")
    found = rows.sort("time").join_asof(own, left_on="time", right_on="from_ms", strategy="backward")
    return found.filter(pl.col("time") + pl.col("interval_ms") <= pl.col("to_ms")).select(rows.columns)


def never_during(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The rows of whose interval no part lies in the spans, with the arguments of `only_during`."""
    theirs = lasting_on(spans.with_columns(gpu=pl.lit("any")), 0).select(from_ms="time", to_ms="end").sort("from_ms")
    last = rows.sort("time").with_columns(last_ms=pl.col("time") + pl.col("interval_ms") - 1)
    found = last.join_asof(theirs, left_on="last_ms", right_on="from_ms", strategy="backward")
    return found.filter(pl.col("to_ms").is_null() | (pl.col("to_ms") <= pl.col("time"))).select(rows.columns)


def binned(rows: pl.DataFrame, names: Sequence[str], since_ms: int, until_ms: int, bin_ms: int) -> pl.DataFrame:
    """One row per bin of the time, in order: `time` (its start) and of every name `_min`, `_mean` and `_max`.

    Means are weighted by the rows' intervals; a bin without a known value is null. Bins lie on the grid of their width.
    """
    start_ms = floor_ms(since_ms, bin_ms)
    bins = pl.select(time=pl.int_range(start_ms, until_ms, bin_ms, dtype=pl.Int64))
    weight = pl.col("interval_ms").cast(pl.Float64)
    sums = [
        value
        for name in names
        for value in (
            pl.col(name).min().alias(f"{name}_min"),
            (
                (pl.col(name) * weight).sum() / weight.filter(pl.col(name).is_not_null()).sum()
            ).fill_nan(None).alias(f"{name}_mean"),
            pl.col(name).max().alias(f"{name}_max"),
        )
    ]  # fmt: skip
    found = rows.group_by(time=pl.col("time").cast(pl.Int64) // bin_ms * bin_ms).agg(*sums)
    return bins.join(found, on="time", how="left", maintain_order="left")
