"""How many GPUs were wanted at once: each hour's most, and how many hours reached each level."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.states import ALLOCATED, IN_USE

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
    found = hourly_most(rows, ("of",), since_ms, until_ms).rename({"most": "there"}).filter(pl.col("there") > 0)
    for name, states in _COUNTED.items():
        most = hourly_most(rows.filter(pl.col("state").is_in(states)), ("of",), since_ms, until_ms)
        found = found.join(most.rename({"most": name}), on=("of", "time"), how="left")
    return found.drop("of").with_columns(pl.col(list(_COUNTED)).fill_null(0.0)).sort("time")


def duration(levels: pl.Series) -> pl.DataFrame:
    """The demand duration curve: for each different level, the highest first, in how many hours at least so much was wanted.

    Columns: `gpus` and `hours`.
    """
    counts = pl.DataFrame({"gpus": levels}).group_by("gpus").agg(hours=pl.len().cast(pl.Int64))
    return counts.sort("gpus", descending=True).with_columns(pl.col("hours").cum_sum())
