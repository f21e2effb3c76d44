"""Small works of one GPU each, and the GPUs on which nothing else ran: what packings are made of."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from analytics.workloads.cards import present_gpus
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.runs import NEED_SHARE, runs
from analytics.workloads.workloads import (
    REPORTED_FROM_GPU_MS,
    RUN_MIN_MS,
    nvlinked,
    runs_of,
    runs_with_workload,
    with_demand,
    workloads,
)


@once_per_context
def small_works(context: Context) -> pl.DataFrame:
    """Works of one GPU that may leave room on it: columns of `with_demand` for NEED_SHARE, `busy95_pct`, `sm95_pct`, `util_mean`, `sm_mean`, `host`, `gpu` and `pool`."""
    alone = workloads(context).filter(
        (pl.col("gpu_count") == 1) & (pl.col("gpus") == 1) & pl.col("need_bytes").is_not_null()
    )
    alone = alone.join(nvlinked(context), on="work", how="anti")
    if alone.is_empty():
        return alone
    where = runs_of(context, alone).join(runs(context).select("run", "sm_mean_pct"), on="run", suffix="_of_run")
    where = where.group_by("work").agg(pl.col("host", "gpu", "sm_mean_pct").first())
    usual = with_demand(context, alone.select("work")).select("work", busy95_pct="util_pct", sm95_pct="sm_pct")
    found = with_demand(context, alone, NEED_SHARE).filter(pl.col("util_pct") > 0)
    found = found.join(where, on="work").join(usual, on="work")
    pools = [context.inventory.pool(gpu) for gpu in found["gpu"]]
    return found.with_columns(pool=pl.Series(pools, dtype=pl.String)).sort("pool", "model", "host", "gpu", "work")


@once_per_context
def short_runs_beside(context: Context) -> Mapping[str, int]:
    """The GPUs on which nothing but small work ran, and how many short runs there were beside it."""
    small = small_works(context)
    if small.is_empty():
        return {}
    own = runs_with_workload(context).filter(~pl.col("service"))
    is_short = (pl.col("ended") - pl.col("began") < RUN_MIN_MS).alias("short")
    rest = (
        own.join(small.select("work"), on="work", how="anti")
        .group_by("gpu")
        .agg(short=is_short.sum(), others=(~is_short).sum())
    )
    per_gpu = (
        small.group_by("gpu")
        .agg(pl.col("gpu_ms").sum())
        .join(rest, on="gpu", how="left")
        .with_columns(pl.col("short", "others").fill_null(0))
    )
    kept = per_gpu.filter((pl.col("others") == 0) & (pl.col("gpu_ms") > REPORTED_FROM_GPU_MS))
    there = present_gpus(context)
    return {gpu: short for gpu, short in kept.select("gpu", "short").iter_rows() if gpu in there}
