"""`host_hourly` and `serving_hourly` of some hosts' same day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.frames import read_frame
from fallow import schema
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fallow.lake import LakeFile

_HOST_MEANS = {
    "cpu_util_mean_pct": "cpu_util_pct",
    "cpu_pressure_mean_pct": "cpu_pressure_pct",
    "mem_pressure_mean_pct": "mem_pressure_pct",
    "io_pressure_mean_pct": "io_pressure_pct",
    "disk_read_mean_bytes_per_s": "disk_read_bytes_per_s",
    "disk_write_mean_bytes_per_s": "disk_write_bytes_per_s",
    "net_receive_mean_bytes_per_s": "net_receive_bytes_per_s",
    "net_transmit_mean_bytes_per_s": "net_transmit_bytes_per_s",
}
_HOUR = (pl.col("time") // HOUR_MS * HOUR_MS).alias("time")


def _known(name: str) -> pl.Expr:
    """What can be a measurement: NaN and negative values are unknown."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    return pl.when(value >= 0).then(value)


def host_hours(files: Sequence[LakeFile]) -> pl.DataFrame:
    """The hours with the columns of `host_hourly`."""
    names = ("time", "cpu_count", *_HOST_MEANS.values())
    frame = read_frame(files, schema.HOST, names).unique(("host", "time"), keep="any")
    return frame.group_by(_HOUR, "host").agg(
        *(_known(source).mean().alias(name) for name, source in _HOST_MEANS.items()),
        pl.col("cpu_count").max(),
        sample_count=pl.len(),
    )


def serving_hours(files: Sequence[LakeFile]) -> pl.DataFrame:
    """The hours with the columns of `serving_hourly`."""
    names = (
        "time", "gpu", "endpoint", "model", "engine", "health", "kv_cache_used_ratio", "running_requests", "waiting_requests",
        "requests_per_s", "generated_tokens_per_s",
    )  # fmt: skip
    frame = read_frame(files, schema.SERVING, names).unique(("host", "time", "gpu", "endpoint", "model"), keep="any")
    answered = (pl.col("health") == "ok").fill_null(value=False)
    return frame.group_by(_HOUR, "host", "gpu", "endpoint", "model").agg(
        pl.col("engine").drop_nulls().last(),
        kv_cache_used_mean_ratio=_known("kv_cache_used_ratio").mean(),
        kv_cache_used_max_ratio=_known("kv_cache_used_ratio").max(),
        running_requests_max=_known("running_requests").max(),
        waiting_requests_max=_known("waiting_requests").max(),
        requests_mean_per_s=_known("requests_per_s").mean(),
        generated_tokens_mean_per_s=_known("generated_tokens_per_s").mean(),
        scrape_count=answered.sum(),
        failed_count=(~answered).sum(),
    )
