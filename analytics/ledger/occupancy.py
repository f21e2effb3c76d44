"""Who had a GPU, for what job, from when to when: the ledger's stretches put together while nobody changes."""

from __future__ import annotations

import polars as pl

from analytics.intervals import SPAN_MS, islands
from analytics.states import ALLOCATED


def stays(stretches: pl.DataFrame) -> pl.DataFrame:
    """Per GPU and time with one holder and job: `gpu`, `host`, `holder`, `job`, `time`, `end` and a column per state.

    Times are in milliseconds; a state's column has its GPU time, a MIG instance's being its part. Time that belongs to
    nobody (free, unavailable, unknown) is left out and ends no stay if the same holder's goes on with the same job. The newest
    come first.
    """
    given = stretches.filter(pl.col("state").is_in(ALLOCATED)).sort("gpu", "time")
    names = ("gpu", "host", "holder", "job")
    spent = SPAN_MS * pl.col("gpu_share")
    sums = [spent.filter(pl.col("state") == state).sum().alias(state) for state in ALLOCATED]
    return (
        given.with_columns(stay=islands(names, None))
        .group_by("stay", maintain_order=True)
        .agg(*(pl.col(name).first() for name in names), pl.col("time").min(), pl.col("end").max(), *sums)
        .drop("stay")
        .sort("time", "gpu", descending=(True, False))
    )
