"""The ledger's rows by the days of the report's own time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from datetime import tzinfo


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
