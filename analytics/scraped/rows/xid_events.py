"""XIDs of exporters that show the newest one of each GPU: an event where it becomes another."""

from __future__ import annotations

import polars as pl

from analytics.scraped.rows.row_settings import RowSettings

EVENT_SCHEMA: dict[str, pl.DataType] = {
    "host": pl.String(),
    "time": pl.Datetime("ms", "UTC"),
    "gpu": pl.String(),
    "kind": pl.String(),
    "code": pl.Int32(),
    "detail": pl.String(),
}

_MOST = 2**31 - 1
"""NVIDIA's numbers have three digits; what the column cannot hold is none."""


def xid_events(gpus: pl.DataFrame, settings: RowSettings) -> pl.DataFrame:
    """Rows of `event` in the window and their `host`, from rows of GPUs by GPU and time (host, gpu, time_ms, code).

    A number that was there in a GPU's first row came at a time that nobody knows, and the same one twice looks like once.
    """
    if "code" not in gpus.columns:
        return pl.DataFrame(schema=EVENT_SCHEMA)
    before = pl.col("code").forward_fill().shift(1).over("gpu")
    inside = pl.col("time_ms").is_between(settings.since_ms, settings.until_ms, closed="left")
    can_be = pl.col("code").is_between(1, _MOST)
    changed = gpus.filter(can_be & (pl.col("code") != before) & inside)
    return changed.select(
        "host",
        time=pl.from_epoch("time_ms", time_unit="ms").cast(EVENT_SCHEMA["time"]),
        gpu="gpu",
        kind=pl.lit("xid"),
        code=pl.col("code").cast(pl.Int32),
        detail=pl.format("the metrics show XID {} from this scrape on", pl.col("code").cast(pl.Int32)),
    )
