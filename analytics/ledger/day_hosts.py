"""`host_hourly` and `serving_hourly` of some hosts' same day."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.frames import empty, read_frame
from analytics.ledger.columns import Columns, Floats
from analytics.ledger.day_rows import in_day
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

_HOST_MEANS = {
    "cpu_util_mean_pct": "cpu_util_pct",
    "cpu_pressure_mean_pct": "cpu_pressure_pct",
    "io_pressure_mean_pct": "io_pressure_pct",
    "disk_read_mean_bytes_per_s": "disk_read_bytes_per_s",
    "disk_write_mean_bytes_per_s": "disk_write_bytes_per_s",
    "net_receive_mean_bytes_per_s": "net_receive_bytes_per_s",
    "net_transmit_mean_bytes_per_s": "net_transmit_bytes_per_s",
}
_HOURS = np.int64(2**32)
"""More hours than there will ever be."""
_HOUR = (pl.col("time") // HOUR_MS * HOUR_MS).alias("time")


_COLUMNS = ("time", "cpu_count", *_HOST_MEANS.values())


def _known(name: str) -> pl.Expr:
    """What can be a measurement: NaN and negative values are unknown."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    return pl.when(value >= 0).then(value)


def host_hours(files: Sequence[LakeFile], day_ms: int, on_unusable: OnUnusable | None = None) -> pl.DataFrame:
    """The hours with the columns of `host_hourly`."""
    columns = Columns(files, schema.HOST, _COLUMNS, on_unusable=on_unusable)
    if not len(columns):
        return empty(schema.HOST_HOURLY)
    time = columns.ints("time")
    hour = time // HOUR_MS
    order = np.flatnonzero(in_day(time, day_ms))
    if (np.diff(columns.host.codes[order] * _HOURS + hour[order]) < 0).any():
        order = order[np.lexsort((hour[order], columns.host.codes[order]))]
    if not len(order):
        return empty(schema.HOST_HOURLY)
    host, hour = columns.host.codes[order], hour[order]
    starts = np.flatnonzero(np.concatenate(([True], (np.diff(host) != 0) | (np.diff(hour) != 0))))
    table: dict[str, object] = {
        name: _means(columns.floats(source)[order], starts) for name, source in _HOST_MEANS.items()
    }
    cpu_count = np.maximum.reduceat(columns.ints("cpu_count")[order], starts)
    frame = pl.DataFrame(
        {
            "time": hour[starts] * HOUR_MS,
            "host": [columns.host.names[code] for code in host[starts]],
            **table,
            "cpu_count": cpu_count,
            "sample_count": np.diff(np.append(starts, len(hour))),
        }
    )
    return frame.with_columns(
        pl.col(*_HOST_MEANS).fill_nan(None), cpu_count=pl.when(pl.col("cpu_count") > 0).then("cpu_count")
    )


def _means(values: Floats, starts: NDArray[np.intp]) -> Floats:
    """The mean of each group, NaN where nothing is known; what is below 0 or no number is unknown."""
    known = np.isfinite(values) & (values >= 0)
    counts = np.add.reduceat(known, starts, dtype=np.float64)
    out = np.full(len(starts), np.nan)
    np.divide(np.add.reduceat(np.where(known, values, 0.0), starts), counts, out=out, where=counts > 0)
    return out


def serving_hours(files: Sequence[LakeFile], day_ms: int, on_unusable: OnUnusable | None = None) -> pl.DataFrame:
    """The hours with the columns of `serving_hourly`."""
    names = (
        "time",
        "gpu",
        "endpoint",
        "model",
        "engine",
        "health",
        "kv_cache_used_ratio",
        "running_requests",
        "waiting_requests",
        "requests_per_s",
        "generated_tokens_per_s",
    )
    if not files:
        return empty(schema.SERVING_HOURLY)
    frame = read_frame(files, schema.SERVING, names, on_unusable).unique(
        ("host", "time", "gpu", "endpoint", "model"), keep="any"
    )
    frame = frame.filter(pl.col("time").is_between(day_ms, day_ms + DAY_MS, closed="left"))
    answered = (pl.col("health") == "ok").fill_null(value=False)
    return frame.group_by(_HOUR, "host", "gpu", "endpoint", "model").agg(
        pl.col("engine").drop_nulls().last(),
        kv_cache_used_max_ratio=_known("kv_cache_used_ratio").max(),
        running_requests_max=_known("running_requests").max(),
        waiting_requests_max=_known("waiting_requests").max(),
        requests_mean_per_s=_known("requests_per_s").mean(),
        generated_tokens_mean_per_s=_known("generated_tokens_per_s").mean(),
        scrape_count=answered.sum(),
    )
