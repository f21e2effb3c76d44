"""The ledger's rows by the hours of UTC, for windows in which a day is too long a step."""

from __future__ import annotations

import polars as pl

from fallow.clock import HOUR_MS


def by_hour(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the ledger cut at full hours of UTC, with `hour` as the millisecond at which it begins.

    Only what a sum of time needs is right afterwards: sums that a row carries, such as its energy, stay those of the whole row.
    """
    first, last = pl.col("time") // HOUR_MS, (pl.col("end") - 1) // HOUR_MS
    cut = rows.with_columns(hour=pl.int_ranges(first, last + 1)).explode("hour")
    start, end = pl.col("hour") * HOUR_MS, (pl.col("hour") + 1) * HOUR_MS
    return cut.with_columns(time=pl.max_horizontal("time", start), end=pl.min_horizontal("end", end), hour=start)
