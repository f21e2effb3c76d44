"""How many GPUs were in some state at once: each hour's most, and how many hours reached each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import polars as pl

from analytics.intervals import clip, levels
from analytics.states import ALLOCATED, IN_USE
from fallow.clock import HOUR_MS

_DIGITS = 6
"""Shares of MIG instances are sevenths: what their sums are off by lies far below."""


def hourly_most(
    spans: pl.DataFrame, by: Sequence[str], since_ms: int, until_ms: int, *, weight: str = "gpu_share"
) -> pl.DataFrame:
    """The most GPUs at once in each hour: `by`, `time` (start of the hour) and `most`, sorted.

    Every value of `by` gets all whole hours of the time, with 0 where it has no span.

    Args:
        spans: rows with `by`, `time`, `end` and the weight that each counts with; none may overlap itself on a GPU.
        by: columns that tell apart what is counted apart.
        since_ms: start of the time; hours that began before are left out.
        until_ms: its end; the hour that holds it is left out.
        weight: the column with the weights.
    """
    first_ms, last_ms = -(-since_ms // HOUR_MS) * HOUR_MS, until_ms // HOUR_MS * HOUR_MS
    hours = pl.select(time=pl.int_range(first_ms, last_ms, HOUR_MS, dtype=pl.Int64))
    marks = spans.select(by).unique().join(hours, how="cross").with_columns(end="time", weight=pl.lit(0.0))
    inside = clip(spans, first_ms, None, sums=()).filter(pl.col("time") < last_ms)
    counted = inside.select(*by, "time", "end", weight=pl.col(weight).cast(pl.Float64))
    return (
        levels(pl.concat([counted, marks]), by, weight=pl.col("weight"))
        .filter(pl.col("time") < last_ms)
        .group_by(*by, time=pl.col("time") // HOUR_MS * HOUR_MS)
        .agg(most=pl.col("level").max().round(_DIGITS))
        .sort(*by, "time")
    )


def hourly_levels(spans: Mapping[str, pl.DataFrame], by: Sequence[str], since_ms: int, until_ms: int) -> pl.DataFrame:
    """`hourly_most` of several kinds of rows side by side, a column of its name for each: the hours of the first, sorted."""
    parts = [hourly_most(rows, by, since_ms, until_ms).rename({"most": name}) for name, rows in spans.items()]
    found = reduce(lambda left, right: left.join(right, on=(*by, "time"), how="left"), parts)
    return found.with_columns(pl.col(*spans).fill_null(0.0)).sort(*by, "time")


_COUNTED: Mapping[str, tuple[str, ...]] = {
    "allocated": ALLOCATED,
    "allocated_or_unknown": (*ALLOCATED, "unknown"),
    "working": IN_USE,
    "working_or_unknown": (*IN_USE, "unknown"),
    "unknown": ("unknown",),
}


def demand(stretches: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """The most GPUs at once in each whole hour of the window in which anything was in the ledger, by time.

    Columns: `time` (start of the hour), `there`, `allocated` (reserved, held or working), `working` (low or active), `unknown`,
    and `allocated_or_unknown` and `working_or_unknown`, the most that it may have been: what nobody saw is no idle time.

    Args:
        stretches: the ledger's rows; a MIG instance counts its share.
        since_ms: start of the window; an hour that began before is left out.
        until_ms: its end; the hour that holds it is left out.
    """
    rows = stretches.with_columns(of=pl.lit(0))
    spans = {name: rows.filter(pl.col("state").is_in(states)) for name, states in _COUNTED.items()}
    return hourly_levels({"there": rows, **spans}, ("of",), since_ms, until_ms).filter(pl.col("there") > 0).drop("of")


def duration(levels: pl.Series) -> pl.DataFrame:
    """The demand duration curve: for each different level, the highest first, in how many hours at least so much was wanted.

    Columns: `gpus` and `hours`.
    """
    counts = pl.DataFrame({"gpus": levels}).group_by("gpus").agg(hours=pl.len().cast(pl.Int64))
    return counts.sort("gpus", descending=True).with_columns(pl.col("hours").cum_sum())
