"""Use of added cards: the first use of each, and the day on which it reached half of the fleet's mean."""

from __future__ import annotations

import polars as pl

from analytics.workloads.ledger_rows import whole_number
from analytics.workloads.model import Context, once_per_context
from fallow.clock import DAY_MS

RAMP_SHARE = 0.5
START_MS = DAY_MS
KNOWN_MIN = 0.5


@once_per_context
def added_gpus(context: Context) -> pl.DataFrame:
    """Return the GPUs that came after the lake's start, on any host.

    Columns: gpu, host (the last one), last_seen, first_seen, first_use, day, added (GPUs that came to the host that
    day).
    """
    gpus = (
        # MIG instances come with every new layout of a card that is old
        context.whole.lifetimes.filter(~pl.col("gpu").str.starts_with("MIG-"))
        .sort("last_seen")
        .group_by("gpu")
        .agg(pl.col("host", "last_seen").last(), pl.col("first_seen", "first_use").min())
        .filter(pl.col("first_seen") > context.whole.first_ms + START_MS)
    )
    day = pl.col("first_seen") // DAY_MS
    return gpus.with_columns(day=day).with_columns(added=pl.len().over("host", "day")).sort("host", "day", "gpu")


def ramps(context: Context, added: pl.DataFrame) -> pl.DataFrame:
    """Return `added` with `ramp_day`, `active_share` and `fleet_mean`, of the days after arrival.

    `ramp_day` is the first day with RAMP_SHARE of the fleet's mean.
    """
    per_day = context.whole.activity(whole_number(added, pl.col("first_seen").min())).select(
        "gpu", "active_ms", date=pl.col("time") // DAY_MS, seen_ms="known_ms"
    )
    old = per_day.join(added.select("gpu"), on="gpu", how="anti")
    new = per_day.join(added.select("gpu", "day", "host"), on="gpu").filter(pl.col("date") > pl.col("day"))
    fleet = _fleet_means(old, added)
    known = new.join(fleet, on="day", how="left").filter(pl.col("seen_ms") >= KNOWN_MIN * DAY_MS)
    share = pl.col("active_ms") / pl.col("seen_ms")
    ramp = known.filter(share >= RAMP_SHARE * pl.col("fleet_mean")).group_by("gpu").agg(ramp_day=pl.col("date").min())
    shares = new.group_by("gpu").agg(active_share=pl.col("active_ms").sum() / pl.col("seen_ms").sum())
    return added.join(ramp, on="gpu", how="left").join(shares, on="gpu", how="left").join(fleet, on="day", how="left")


def _fleet_means(old: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
    """Return, by day of arrival, the active share since then of the GPUs there from the start: day, fleet_mean."""
    days = added.select("day").unique()
    since = old.join(days, how="cross").filter(pl.col("date") > pl.col("day"))
    return since.group_by("day").agg(fleet_mean=pl.col("active_ms").sum() / pl.col("seen_ms").sum())
