"""Jobs as a policy gives them what they ask for: when they come, how long they run, with how many GPUs, and how urgent they are."""

from __future__ import annotations

import polars as pl

from analytics.plan.replay.policy import OffPeakHours, Priorities, ReplayPolicy, SmallWork


def given_jobs(jobs: pl.DataFrame, policy: ReplayPolicy) -> pl.DataFrame:
    """The jobs as they come under the policy, in their order.

    With `arrived`, `rank`, `is_small`, `cut_ms` and `worked_later` beside REPLAY_JOB_SCHEMA; `ran_ms`, `limit_ms`, `gpus`, `hosts` and `pool` are changed.

    Args:
        jobs: with REPLAY_JOB_SCHEMA.
        policy: see there.
    """
    ranked = jobs.with_columns(
        arrived=arrived(policy.off_peak), rank=rank(policy.priorities), is_small=is_small(policy.small_work)
    )
    given = with_idle_timeout(ranked, policy.idle_timeout_ms)
    if policy.limit_to_need:
        given = given.with_columns(limit_ms="ran_ms")
    return with_merged_pools(in_blocks(given, policy.block), policy.merge)


def arrived(hours: OffPeakHours | None) -> pl.Expr:
    """When a job comes: when it asked, or began where that is unknown or it ran already; deferrable ones at the next off-peak hour."""
    ran_before = pl.col("before_window") | pl.col("asked").is_null()
    came = pl.when(ran_before).then("started").otherwise("asked")
    if hours is None:
        return came
    waits = (pl.col("is_deferrable") & ~pl.col("before_window")).fill_null(value=False)
    return pl.when(waits).then(next_off_peak(came, hours)).otherwise(came)


def next_off_peak(moment: pl.Expr, hours: OffPeakHours) -> pl.Expr:
    """The same moment within the hours, else when they begin next, on the local clock."""
    local = pl.from_epoch(moment, "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(hours.zone)
    wall = local.dt.replace_time_zone(None)
    minute = (wall.dt.hour().cast(pl.Int64) * 60 + wall.dt.minute()).cast(pl.Int64)
    since, until = hours.since_min, hours.until_min
    is_off_peak = (minute >= since) & (minute < until) if since <= until else (minute >= since) | (minute < until)
    begins = wall.dt.truncate("1d") + pl.duration(minutes=since) + pl.duration(days=(minute >= since).cast(pl.Int64))
    as_zoned = begins.dt.replace_time_zone(hours.zone, ambiguous="earliest", non_existent="null")
    after_gap = (begins + pl.duration(hours=1)).dt.replace_time_zone(
        hours.zone, ambiguous="earliest", non_existent="null"
    )
    return pl.when(is_off_peak).then(moment).otherwise(pl.coalesce(as_zoned, after_gap).dt.epoch("ms"))


def rank(priorities: Priorities | None) -> pl.Expr:
    """How urgent a job is: 0 is the most urgent; those of which it is unknown come last."""
    if priorities is None:
        return pl.lit(0, pl.Int64)
    column = pl.col(priorities.by)
    if priorities.by == "priority":
        return column.rank("dense", descending=True).cast(pl.Int64).fill_null(column.n_unique() + 1)
    places = {value: place for place, value in enumerate(priorities.values)}
    return column.replace_strict(places, default=len(places), return_dtype=pl.Int64)


def is_small(work: SmallWork | None) -> pl.Expr:
    """Whether a job is small work; one whose need of memory is unknown is not."""
    if work is None:
        return pl.lit(value=False)
    is_kind = pl.col("kind").is_in(work.kinds).fill_null(value=False)
    return (is_kind | (pl.col("gpus") == 1)) & pl.col("mem_bytes").is_not_null()


def with_idle_timeout(jobs: pl.DataFrame, timeout_ms: int | None) -> pl.DataFrame:
    """The jobs, ended once none of their GPUs has worked for so long; those whose idle spells are unknown run as they did."""
    if timeout_ms is None:
        return jobs.with_columns(cut_ms=pl.lit(0, pl.Int64), worked_later=pl.lit(value=False))
    numbered = jobs.with_row_index("row")
    spells = numbered.select("row", "ran_ms", spell="idle_spells").explode("spell").drop_nulls("spell").unnest("spell")
    over = (
        spells.filter(pl.col("end") - pl.col("begin") >= timeout_ms)
        .group_by("row")
        .agg(pl.col("begin").min() + timeout_ms, worked_later=(pl.col("end").min() < pl.col("ran_ms").first()))
    )
    found = numbered.join(over, on="row", how="left", maintain_order="left")
    ends = pl.min_horizontal("ran_ms", pl.coalesce("begin", "ran_ms"))
    return found.with_columns(
        ran_ms=ends, cut_ms=pl.col("ran_ms") - ends, worked_later=pl.col("worked_later").fill_null(value=False)
    ).drop("row", "begin")


def in_blocks(jobs: pl.DataFrame, block: int | None) -> pl.DataFrame:
    """The jobs with as many GPUs as they ever used, in blocks; never more than they had, on as few hosts as hold these as before."""
    if block is None:
        return jobs
    used = pl.max_horizontal(pl.col("gpus_used"), 1)
    blocks = pl.min_horizontal("gpus", (used + block - 1) // block * block)
    given = pl.when(pl.col("gpus_used").is_null()).then("gpus").otherwise(blocks)
    per_host = (pl.col("gpus") + pl.col("hosts") - 1) // pl.col("hosts")
    return jobs.with_columns(gpus=given, hosts=(given + per_host - 1) // per_host)


def with_merged_pools(jobs: pl.DataFrame, merge: tuple[tuple[str, ...], ...]) -> pl.DataFrame:
    """The jobs with the name of the pool that theirs became."""
    return jobs.with_columns(pl.col("pool").replace({pool: pools[0] for pools in merge for pool in pools}))
