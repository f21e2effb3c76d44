"""The ledger's rows by the days of the report's own time zone, and by hours for windows in which a day is too long a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fallow.clock import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from datetime import tzinfo


HOURLY_UP_TO_MS = 3 * DAY_MS


def by_day(rows: pl.DataFrame, zone: tzinfo) -> pl.DataFrame:
    """Rows of the ledger, none longer than a UTC day, cut at the zone's midnights, with `day` as `2026-11-20`."""
    name = str(zone)
    # a day of 23 hours has both of its midnights in one of UTC
    for _ in range(2):
        midnight = _midnight_after(pl.col("time"), name)
        across = midnight < pl.col("end")
        late = rows.filter(across).with_columns(time=midnight)
        if late.is_empty():
            break
        rows = pl.concat([rows.with_columns(end=pl.when(across).then(midnight).otherwise("end")), late])
    local = pl.from_epoch("time", "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(name)
    return rows.with_columns(day=local.dt.strftime("%Y-%m-%d"))


def _midnight_after(time: pl.Expr, zone: str) -> pl.Expr:
    local = pl.from_epoch(time, "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return local.dt.truncate("1d").dt.offset_by("1d").dt.epoch("ms")


def by_hour(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the ledger cut at full hours of UTC, with `hour` as the millisecond at which it begins.

    Only what a sum of time needs is right afterwards: sums that a row carries, such as its energy, stay those of the whole row.
    """
    first, last = pl.col("time") // HOUR_MS, (pl.col("end") - 1) // HOUR_MS
    cut = rows.with_columns(hour=pl.int_ranges(first, last + 1)).explode("hour")
    start, end = pl.col("hour") * HOUR_MS, (pl.col("hour") + 1) * HOUR_MS
    return cut.with_columns(time=pl.max_horizontal("time", start), end=pl.min_horizontal("end", end), hour=start)
