"""Which jobs waited for GPUs in a window, from when to when, and in which pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

PARTITION = ("scheduler", "partition")
"""What tells partitions apart."""

_NOT_YET = ("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser")
"""Reasons of Slurm (squeue, JOB REASON CODES) for which a job waits for something else than GPUs, by its user's own wish."""


def with_pools(jobs: pl.DataFrame, claimed: pl.DataFrame, hosts: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """The jobs with `pool` and `is_ambiguous`.

    The pool is the one that most of a job's GPUs lay in. Of a job that ran nowhere it is the one in which most jobs of its
    partition ran; where those ran in several it is ambiguous. Null where nobody knows.

    Args:
        jobs: with JOB_SCHEMA and `number`.
        claimed: see `claimed_spans`.
        hosts: those of each pool.
    """
    pool_of = {host: pool for pool, own in hosts.items() for host in own}
    there = claimed.with_columns(pool=pl.col("host").replace_strict(pool_of, default=None, return_dtype=pl.String))
    parts = there.drop_nulls("pool").group_by("number", "pool").agg(pl.col("gpus").sum())
    ordered = parts.sort("number", "gpus", "pool", descending=[False, True, False])
    own = ordered.unique("number", keep="first", maintain_order=True).select("number", "pool")
    found = jobs.join(own, on="number", how="left", maintain_order="left")
    ran = found.drop_nulls(["pool", "partition"]).group_by(*PARTITION, "pool").len()
    usual = (
        ran.sort("len", "pool", descending=[True, False])
        .group_by(PARTITION, maintain_order=True)
        .agg(usual=pl.col("pool").first(), several=pl.len() > 1)
    )
    found = found.join(usual, on=PARTITION, how="left", maintain_order="left")
    is_ambiguous = (pl.col("pool").is_null() & pl.col("several")).fill_null(value=False)
    return found.with_columns(pool=pl.coalesce("pool", "usual"), is_ambiguous=is_ambiguous).drop("usual", "several")


def jobs_in_window(jobs: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Jobs that waited in the window or got GPUs in it, with `asked`, `begin`, `until` and `is_open`, as their waits ended.

    A wait lasts from when the job could have begun, else from when it was submitted, until it began or was withdrawn, or until
    it was last seen to wait; `begin` and `until` are cut to the window. `is_open` is whether it still waited then. `asked` is
    null where nobody knows when it was, and of jobs that could not begin yet for another reason than GPUs.
    """
    over = pl.coalesce("start", "withdrawn")
    could_begin = ~pl.col("reason").is_in(_NOT_YET).fill_null(value=False)
    asked = pl.coalesce("eligible", pl.when(could_begin).then("submitted"))
    last = pl.coalesce(over, "as_of", pl.lit(until_ms))
    timed = jobs.with_columns(asked=asked, last=last)
    there = timed.filter(pl.coalesce("asked", "last") < until_ms, pl.col("last") >= since_ms)
    stop = pl.min_horizontal("last", pl.lit(until_ms))
    return there.with_columns(
        begin=pl.max_horizontal(pl.min_horizontal("asked", stop), pl.lit(since_ms)),
        until=stop,
        is_open=over.is_null() | (over >= until_ms),
    ).sort("last", "begin", "priority", "number", descending=[False, False, True, False])


def blocks(jobs: pl.DataFrame, claimed: pl.DataFrame) -> dict[tuple[str | None, str, str], list[str]]:
    """The hosts that jobs of a scheduler's partition ever ran on in a pool: others of the pool are none of its block."""
    ran = claimed.join(jobs.select("number", *PARTITION, "pool"), on="number").drop_nulls(["partition", "pool"])
    hosts = ran.group_by(*PARTITION, "pool").agg(pl.col("host").unique())
    return {(scheduler, partition, pool): own for scheduler, partition, pool, own in hosts.iter_rows()}
