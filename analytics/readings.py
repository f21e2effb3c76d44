"""Readings of one GPU over a time, for display: the rows themselves, or the least, mean and most of each bin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from analytics.intervals import merge
from analytics.ledger.credible_rows import credible_rows
from analytics.ledger.day_rows import read_day_rows
from fallow.clock import DAY_MS, floor_ms, utc_day
from fallow.lake import Lake

READINGS = ("gpu_util_pct", "sm_active_pct", "mem_used_bytes", "power_w")
_SCHEMA = dict.fromkeys(("time", "interval_ms"), pl.Int64) | dict.fromkeys(READINGS, pl.Float64)


def gpu_readings(lake: Lake, gpu: str, spans: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Return the GPU's rows that begin inside the time: `time`, `interval_ms` and READINGS, sorted; null is unknown.

    They are the rows on which the ledger rests. Of several rows for one moment it is the counted one, each until the
    next row at most, and for each host only the time that counts for that host. Only the files of those hosts and of
    the time's days are opened, a day of a host at a time; unusable files are left out. Raises LakeError and its kinds.

    Args:
        lake: the lake with the rows.
        gpu: the GPU.
        spans: the ledger's rows of the GPU: `host`, `time`, `end` and `gpu_share`.
        since_ms: start of the time.
        until_ms: its end.
    """
    by_host = spans.partition_by("host", as_dict=True)
    found = [pl.DataFrame(schema=_SCHEMA)]
    for (host,), own in sorted(by_host.items()):
        rows = _rows_of_host(lake, gpu, str(host), since_ms, until_ms)
        found.append(only_during(rows, own) if len(by_host) > 1 else rows)
    inside = pl.concat(found).filter((pl.col("time") >= since_ms) & (pl.col("time") < until_ms))
    return inside.sort("time")


def _rows_of_host(lake: Lake, gpu: str, host: str, since_ms: int, until_ms: int) -> pl.DataFrame:
    days = range(floor_ms(since_ms, DAY_MS), until_ms, DAY_MS)
    files = lake.files("gpu", hosts=[host], dates=list(map(utc_day, days)))
    found = [pl.DataFrame(schema=_SCHEMA)]
    for day_ms in days:
        own = [file for file in files if file.date == utc_day(day_ms)]
        rows = credible_rows(read_day_rows(own, day_ms, gpu, lake.left_out.leave_out))
        values = {name: pl.Series(rows.floats[name], nan_to_null=True) for name in READINGS}
        lasted = np.minimum(rows.interval, rows.span)
        found.append(pl.DataFrame({"time": rows.time, "interval_ms": lasted, **values}, schema=_SCHEMA))
    return pl.concat(found).sort("time")


def only_during(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose whole interval lies in the given ledger segments, without the time of other users.

    Args:
        rows: `time` and `interval_ms`, sorted by time.
        spans: `time`, `end`, `gpu` and `gpu_share`; those of several GPUs count together.
    """
    own = merge(spans, ()).select(from_ms="time", to_ms="end").sort("from_ms")
    found = rows.sort("time").join_asof(own, left_on="time", right_on="from_ms", strategy="backward")
    return found.filter(pl.col("time") + pl.col("interval_ms") <= pl.col("to_ms")).select(rows.columns)


def never_during(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose interval lies wholly outside the given segments, with the arguments of `only_during`."""
    theirs = merge(spans, ()).select(from_ms="time", to_ms="end").sort("from_ms")
    last = rows.sort("time").with_columns(last_ms=pl.col("time") + pl.col("interval_ms") - 1)
    found = last.join_asof(theirs, left_on="last_ms", right_on="from_ms", strategy="backward")
    return found.filter(pl.col("to_ms").is_null() | (pl.col("to_ms") <= pl.col("time"))).select(rows.columns)


def binned(rows: pl.DataFrame, names: Sequence[str], since_ms: int, until_ms: int, bin_ms: int) -> pl.DataFrame:
    """Return one row per bin of the time, in order: `time` (its start) and of every name `_min`, `_mean` and `_max`.

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
            ((pl.col(name) * weight).sum() / weight.filter(pl.col(name).is_not_null()).sum())
            .fill_nan(None)
            .alias(f"{name}_mean"),
            pl.col(name).max().alias(f"{name}_max"),
        )
    ]
    found = rows.group_by(time=pl.col("time").cast(pl.Int64) // bin_ms * bin_ms).agg(*sums)
    return bins.join(found, on="time", how="left", maintain_order="left")
