"""Where the counters of a GPU began anew: `counters_since` of scraped rows."""

from __future__ import annotations

import polars as pl

from analytics.scraped.rows.lake_columns import COUNTERS

_MOST_W = 5_000
"""A counter that rises faster is not the same one any more (the agent's rule)."""


def with_epochs(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows, by GPU and time, with `counters_since`: the first row after the last new beginning; null before any.

    No series says when its counter began to climb, and whoever reads the rows takes differences within one epoch only.
    """
    present = [name for name in COUNTERS if name in frame.columns]
    if not present:
        return frame
    begins = [pl.col(name) < pl.col(name).forward_fill().shift(1).over("gpu") for name in present]
    if "energy_mj" in present:
        begins.append(_too_fast())
    anew = pl.any_horizontal(pl.lit(value=False), *(each.fill_null(value=False) for each in begins))
    found = frame.with_columns(_anew=anew)
    if not found["_anew"].any():
        return found.drop("_anew").with_columns(counters_since=pl.lit(None, pl.Int64))
    since = pl.when("_anew").then("time_ms").forward_fill().over("gpu")
    return found.with_columns(counters_since=since).drop("_anew")


def _too_fast() -> pl.Expr:
    energy = pl.col("energy_mj")
    passed_ms = pl.col("time_ms") - pl.when(energy.is_not_null()).then("time_ms").forward_fill().shift(1).over("gpu")
    return energy - energy.forward_fill().shift(1).over("gpu") > _MOST_W * passed_ms
