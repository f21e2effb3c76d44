"""What MIG instances may have drawn: the driver measures the whole GPU only, so this is a share of it and an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.language.sentences import say
from analytics.ledger.day_mig import MIG_PREFIX
from analytics.workloads.memo import once
from analytics.workloads.row_index import Places
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from analytics.workloads.model import Context

ESTIMATED = say(
    "its energy is an estimate: what the whole GPU drew in those hours, by its slices: too much for one that idles beside others that work"
)


def has_instances(stretches: pl.DataFrame) -> bool:
    """Whether any of the rows is of a MIG instance."""
    return any(gpu.startswith(MIG_PREFIX) for gpu in set(stretches["gpu"].to_list()))


def with_estimates(context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
    """The ledger rows with `energy_mj` and `energy_ms` of MIG instances: their share of what their GPU drew in the same hours.

    By slices and time: what each instance adds nobody can measure. One that idles beside one that works is given too much.
    """
    parents = {gpu: device.parent_gpu for gpu, device in context.inventory.devices.items() if device.parent_gpu}
    rows = stretches.with_row_index("_row")
    own = rows.filter(pl.col("gpu").str.starts_with(MIG_PREFIX)).select(
        "_row", "host", "gpu", "time", "end", "gpu_share"
    )
    own = own.with_columns(gpu=pl.col("gpu").replace_strict(parents, default=None, return_dtype=pl.String))
    hours = _hours(context).of(own["gpu"].drop_nulls().unique().to_list())
    first, last = pl.col("time") // HOUR_MS, (pl.col("end") - 1) // HOUR_MS
    pieces = own.with_columns(hour=pl.int_ranges(first, last + 1)).explode("hour")
    met = pieces.join(hours.with_columns(hour=pl.col("time") // HOUR_MS).drop("time"), on=("host", "gpu", "hour"))
    hour_ms = pl.col("hour") * HOUR_MS
    during = pl.min_horizontal("end", hour_ms + HOUR_MS) - pl.max_horizontal("time", hour_ms)
    told = pl.min_horizontal(during, "hour_known_ms")
    drawn = met.group_by("_row").agg(
        estimate_mj=(pl.col("hour_mj") / pl.col("hour_known_ms") * told * pl.col("gpu_share")).sum(),
        estimate_ms=told.sum(),
    )
    found = rows.join(drawn, on="_row", how="left", maintain_order="left")
    return found.with_columns(
        energy_mj=pl.coalesce("estimate_mj", "energy_mj"), energy_ms=pl.coalesce("estimate_ms", "energy_ms")
    ).drop("_row", "estimate_mj", "estimate_ms")


@once
def _hours(context: Context) -> Places:
    """What each GPU drew in each hour, by GPU: host, time, hour_mj and for how long it is known."""
    hours = context.rollups.hourly("energy_mj", "energy_ms").filter((pl.col("energy_ms") > 0).fill_null(value=False))
    known = hours.select("host", "gpu", "time", hour_mj="energy_mj", hour_known_ms=pl.col("energy_ms").cast(pl.Int64))
    return Places(known, "gpu")
