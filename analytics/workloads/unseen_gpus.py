"""Jobs whose claim counts more GPUs of a host than the job was ever seen on.

Slurm's accounting says how many GPUs of a node a job had, never which. Where its processes were seen on fewer, the rest of
them did nothing for it: those are among the GPUs of the host on which nobody was while the job ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.intervals import clip
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.states import OCCUPIED
from analytics.workloads.allocation_spans import claims
from analytics.workloads.finding_parts import SPAN
from analytics.workloads.ledger_by_job import by_job

if TYPE_CHECKING:
    from analytics.workloads.model import Context

KNOWN_MIN = 0.9


def unseen_gpus(context: Context, shortest_ms: int) -> pl.DataFrame:
    """One row per job and host with GPUs that the claim counts and that the job was surely never on.

    Columns: work (as in `by_job`), host, start and end (of the claim), claimed, seen (how many GPUs), unseen (how many it
    surely never was on), candidates (the UUIDs among which these are: nobody was on them while it ran).

    Args:
        context: the window; claims and rows before it count as well.
        shortest_ms: claims that were shorter are left out.
    """
    counted = _counted(context).filter(pl.col("end") - pl.col("start") >= shortest_ms)
    if counted.is_empty():
        return _none(counted)
    there = context.whole.stretches.join(counted.select("host").unique(), on="host", how="semi")
    parts = there.filter(pl.col("gpu_share") != 1).select("host").unique()
    counted = counted.join(parts, on="host", how="anti")  # what is split is claimed by the instance
    if counted.is_empty():
        return _none(counted)
    own = by_job(there).select("work", "host", "gpu").unique()
    seen = own.group_by("work", "host").agg(seen=pl.len().cast(pl.Int64))
    beside = _beside(there, counted, own)
    found = counted.join(seen, on=("work", "host"), how="left").join(beside, on=("work", "host"))
    found = found.with_columns(pl.col("seen").fill_null(0))
    # what ran elsewhere without the name of a job, or unseen, may be this one's
    unseen = pl.col("claimed") - pl.col("seen") - pl.col("doubtful")
    found = found.with_columns(unseen=pl.min_horizontal(unseen, pl.col("candidates").list.len()))
    return found.filter(pl.col("unseen") > 0).drop("doubtful").sort("work", "host")


def _none(counted: pl.DataFrame) -> pl.DataFrame:
    return counted.with_columns(
        seen=pl.lit(None, pl.Int64), unseen=pl.lit(None, pl.Int64), candidates=pl.lit(None, pl.List(pl.String))
    )


def _counted(context: Context) -> pl.DataFrame:
    """Runs whose GPUs on a host are counted and not, or not all, named: work, host, start, end, claimed."""
    run = ("job", "host", "start")
    rows = claims(context).with_columns(pl.col("end").clip(upper_bound=context.until_ms))
    nameless = pl.col("gpu").is_null()
    return (
        rows.group_by(run)
        .agg(
            pl.col("end").max(),
            rest=pl.col("host_gpu_count").filter(nameless).max(),
            named=pl.col("gpu").drop_nulls().n_unique().cast(pl.Int64),
        )
        .filter(pl.col("rest") > 0)
        # of a job that ran twice on a host nobody can say which run was seen where
        .filter(pl.len().over("job", "host") == 1)
        .select(pl.col("host"), "start", "end", work="job", claimed=pl.col("rest") + pl.col("named"))
    )


def _beside(there: pl.DataFrame, counted: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Per work and host the other GPUs on which nobody was meanwhile, and on how many the work may have been all the same."""
    met = there.join(counted.select("work", "host", "start", claim_end="end"), on="host")
    met = met.filter((pl.col("time") < pl.col("claim_end")) & (pl.col("end") > pl.col("start")))
    met = met.join(own, on=("work", "host", "gpu"), how="anti")
    during = clip(met, "start", "claim_end")
    unwatched = pl.col("holder_source").is_in(NOBODY_LOOKED).fill_null(value=False) | (pl.col("state") == "unknown")
    span_ms = pl.col("claim_end").first() - pl.col("start").first()
    watched = SPAN.filter(~unwatched).sum() >= KNOWN_MIN * span_ms
    nameless = (pl.col("state").is_in(OCCUPIED) & pl.col("job").is_null()).any()
    per_gpu = during.group_by("work", "host", "gpu").agg(
        nobody=((pl.col("state") == "free") | unwatched).all() & watched, doubtful=nameless | ~watched
    )
    return per_gpu.group_by("work", "host").agg(
        candidates=pl.col("gpu").filter("nobody").sort(), doubtful=pl.col("doubtful").sum().cast(pl.Int64)
    )
