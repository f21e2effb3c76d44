"""GPUs in a state at once, by hour, and which multi-GPU jobs could start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import polars as pl

from analytics.intervals import clip, levels
from analytics.states import ALLOCATED, IN_USE, PERHAPS_FREE
from fallow.clock import HOUR_MS

SIZES_LEAST = (1, 2, 4, 8)
"""Job sizes that are always reported; larger sizes depend on the fleet."""

_GROUP = ("pool", "model")
_PLACE = (*_GROUP, "host")


@dataclass(frozen=True)
class Gang:
    """Jobs that want `size` GPUs at once, of a model in a pool. Shares are of the window, None for an empty window.

    `_most` fields also count GPUs that were not observed as free.
    """

    size: int
    now: int
    """Jobs that could start at the end of the window."""
    now_most: int
    free_share: float | None
    """Share of the window with this many free GPUs, on any hosts."""
    start_share: float | None
    """Share of the window in which a job could start."""
    start_share_most: float | None


def gangs(placed: pl.DataFrame, since_ms: int, until_ms: int, wanted: Sequence[int] | None = None) -> tuple[Gang, ...]:
    """Return a Gang for each size, the smallest first.

    A job that fits on a host runs on a single host; a larger job takes whole free hosts. Only whole GPUs count, no MIG
    instances. A host has as many GPUs as the largest host of its model and pool in the window.

    `placed` has `pool` and `model`. The sizes `wanted` are by default 1, 2, 4, 8 and further, up to the size of the
    fleet.
    """
    rows = clip(placed.filter(pl.col("gpu_share") == 1), since_ms, until_ms)
    if wanted is None:
        wanted = sizes(int(levels(rows, _GROUP).select(pl.col("level").max()).item() or 0))
    widths, window_ms = _widths(rows), until_ms - since_ms
    sure, most = (_levels_in(rows, states, widths) for states in (("free",), PERHAPS_FREE))
    apart = _summed(sure, pl.col("level"), _GROUP)
    found = []
    for size in wanted:
        counted = (_summed(apart, pl.col("level") // size), starting(sure, size), starting(most, size))
        now = (_last(each, until_ms) for each in counted[1:])
        found.append(Gang(size, *now, *(_share(each, until_ms, window_ms) for each in counted)))
    return tuple(found)


def free_levels(rows: pl.DataFrame, states: Sequence[str]) -> pl.DataFrame:
    """Return the number of whole GPUs of each host that are in one of the states at once.

    Columns: those of `levels` by pool, model and host, and `width`, the GPUs of a host of this pool and model.
    """
    return _levels_in(rows, states, _widths(rows))


def _widths(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the highest number of whole GPUs of a host, by pool and model."""
    return levels(rows, _PLACE).group_by(_GROUP).agg(width=pl.col("level").max())


def _levels_in(rows: pl.DataFrame, states: Sequence[str], widths: pl.DataFrame) -> pl.DataFrame:
    return levels(rows.filter(pl.col("state").is_in(states)), _PLACE).join(widths, on=_GROUP)


def sizes(gpus: int) -> tuple[int, ...]:
    """Return 1, 2, 4, 8 and further powers of two, up to a number of GPUs."""
    return tuple(2**power for power in range(max(len(SIZES_LEAST), gpus.bit_length())))


def starting(free: pl.DataFrame, size: int) -> pl.DataFrame:
    """Return how many jobs of a size could start, from `free_levels`, with the columns of `levels`."""
    small, large = free.filter(pl.col("width") >= size), free.filter(pl.col("width") < size)
    whole = _summed(large, pl.col("level") // pl.col("width"), (*_GROUP, "width"))
    hosts = (pl.lit(size) + pl.col("width") - 1) // pl.col("width")
    could = (small.with_columns(pl.col("level") // size), whole.with_columns(pl.col("level") // hosts))
    return _summed(pl.concat([each.select("time", "end", "level") for each in could]), pl.col("level"))


def _summed(free: pl.DataFrame, value: pl.Expr, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the sum of a value over simultaneous rows of `levels`, with the columns of `levels`."""
    return levels(free.drop_nulls("end"), by, weight=value)


def _last(counted: pl.DataFrame, until_ms: int) -> int:
    before = counted.filter(pl.col("time") < until_ms)
    return int(before["level"][-1]) if before.height else 0


def _share(counted: pl.DataFrame, until_ms: int, window_ms: int) -> float | None:
    """Return the share of the window in which the level was at least 1."""
    lasting = pl.col("end").fill_null(until_ms) - pl.col("time")
    enough_ms = int(counted.select(lasting.filter(pl.col("level") >= 1).sum()).item() or 0)
    return enough_ms / window_ms if window_ms > 0 else None


_DIGITS = 6
"""Digits for rounding. Shares of MIG instances are sevenths, and the error of their sums is far smaller."""


def hourly_most(
    spans: pl.DataFrame, by: Sequence[str], since_ms: int, until_ms: int, *, weight: str = "gpu_share"
) -> pl.DataFrame:
    """Return the most GPUs at once in each hour: `by`, `time` (start of the hour) and `most`, sorted.

    Every value of `by` gets all whole hours of the time, with 0 in hours without a span.

    Rows of a GPU in `spans` must not overlap. GPUs are counted separately by the columns `by`. Hours that are only
    partly in the time are left out.
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
    """Return `hourly_most` with a column per kind of rows, for the hours of the first kind, sorted."""
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


def demand(segments: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Return the most GPUs at once in each whole hour of the window with any row in the ledger, by time.

    Columns: `time` (start of the hour), `there`, `allocated` (reserved, held or working), `working` (low or active),
    `unknown`, and `allocated_or_unknown` and `working_or_unknown`, the highest possible values: unobserved time is not
    idle time.

    A MIG instance counts its share. Hours that are only partly in the window are left out.
    """
    rows = segments.with_columns(of=pl.lit(0))
    spans = {name: rows.filter(pl.col("state").is_in(states)) for name, states in _COUNTED.items()}
    return hourly_levels({"there": rows, **spans}, ("of",), since_ms, until_ms).filter(pl.col("there") > 0).drop("of")


def duration(levels: pl.Series) -> pl.DataFrame:
    """Return the demand duration curve: for each level, the highest first, the hours in which demand reached it.

    Columns: `gpus` and `hours`.
    """
    counts = pl.DataFrame({"gpus": levels}).group_by("gpus").agg(hours=pl.len().cast(pl.Int64))
    return counts.sort("gpus", descending=True).with_columns(pl.col("hours").cum_sum())
