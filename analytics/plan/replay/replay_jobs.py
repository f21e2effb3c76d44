"""The jobs of a window as they are replayed: rebuilt from what the queue says of them, and from use of GPUs without a job.

A job comes when it could have begun, not when it started. Of use without a job, and of jobs that do not tell, nobody knows when they
were asked for: they come when they started.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import polars as pl

from analytics.intervals import clip
from analytics.plan.replay.bare_jobs import bare_jobs
from analytics.plan.replay.idle_spells import NUMBERED_ROWS, idle_spells
from analytics.plan.replay.job_schema import REPLAY_JOB_SCHEMA
from analytics.plan.replay.work_kinds import is_deferrable, work_kind
from analytics.plan.waiting_jobs import COULD_BEGIN, POOL_MODEL, PoolModel, located, run_ms
from analytics.workloads.ledger_rows import by_job
from fallow.clock import HOUR_MS

SEEN_WAITING_MS = HOUR_MS
"""A job without GPUs still waits where it was seen to wait so shortly before the end of the window."""

TeamOf = Callable[[str | None, str | None], str | None]

WORK_NEEDS = {
    "host": pl.String(),
    "gpu": pl.String(),
    "holder": pl.String(),
    "account": pl.String(),
    "job": pl.String(),
    "need_bytes": pl.Int64(),
    "sm_pct": pl.Float64(),
}
"""What work needs of a GPU; null is unknown."""


@dataclass(frozen=True)
class RebuiltJobs:
    """What is replayed.

    Attributes:
        jobs: with REPLAY_JOB_SCHEMA, and `rank`: the quality of service, else the priority, as in `analytics.plan.waits`.
        never_ran: jobs that gave up, or were not seen any more; left out.
        unplaced: jobs without a number of GPUs or a known pool, and those on MIG instances; left out.
    """

    jobs: pl.DataFrame
    never_ran: int
    unplaced: int

    @property
    def queued(self) -> int:
        """How many of them the queue knows; the others are use without a job."""
        return self.jobs["job"].drop_nulls().len()

    @property
    def unasked(self) -> int:
        """Of how many queued ones nobody knows when they asked."""
        return self.jobs.filter(pl.col("job").is_not_null() & pl.col("asked").is_null()).height


def rebuilt_jobs(
    jobs: pl.DataFrame,
    placed: pl.DataFrame,
    needs: pl.DataFrame,
    *,
    window: tuple[int, int],
    team_of: TeamOf,
    places: Collection[PoolModel],
) -> RebuiltJobs:
    """The jobs that ran in a window or waited at its end.

    Args:
        jobs: with `analytics.plan.jobs.JOB_SCHEMA`; also those before the window, which say which pool a partition uses.
        placed: the ledger's rows of the window with `pool`, `model` and `instance`.
        needs: with WORK_NEEDS.
        window: its start and end, in ms.
        team_of: the team of a user and an account.
        places: the pools and models whose jobs are wanted.
    """
    whole = placed.filter(~pl.col("instance"))
    located_jobs, claimed = located(jobs, whole)
    known = located_jobs.filter(in_places(places) | pl.col("pool").is_null())
    asked = known.with_columns(asked=COULD_BEGIN).with_columns(run_ms=run_ms("asked", window[1]))
    there = asked.filter(_ran_in(window) | _waits_at(window[1]))
    on_parts = by_job(placed.filter("instance"))["work"].unique()
    is_placed = (pl.col("gpus") > 0).fill_null(value=False) & pl.col("pool").is_not_null()
    queued = _queued(there.filter(is_placed, ~pl.col("ledger_job").is_in(on_parts.implode())), whole)
    spans = claimed.with_columns(pl.col("end").fill_null(window[1]))
    bare, bare_rows = bare_jobs(whole.filter(in_places(places)), spans, jobs.height)
    rows = pl.concat([_rows_of(whole, queued, window[1]), bare_rows])
    found = pl.concat([queued, _bare(bare)], how="diagonal_relaxed")
    return RebuiltJobs(
        jobs=_conform(_with_use(found, rows, needs), window[0], team_of),
        never_ran=asked.filter(_gave_up_in(window) & ~_ran_in(window) & ~_waits_at(window[1])).height,
        unplaced=there.height - queued.height,
    )


def in_places(places: Collection[PoolModel]) -> pl.Expr:
    """Of rows with POOL_MODEL: whether they are of one of these."""
    return pl.any_horizontal(
        pl.lit(value=False), *((pl.col("pool") == pool) & (pl.col("model") == model) for pool, model in sorted(places))
    )


def _ran_in(window: tuple[int, int]) -> pl.Expr:
    begun = (pl.col("start") < window[1]).fill_null(value=False)
    return begun & (pl.col("end").is_null() | (pl.col("end") > window[0]))


def _waits_at(until_ms: int) -> pl.Expr:
    """Whether a job waits at a moment, as far as it was seen to."""
    later = [(pl.col(name) >= until_ms).fill_null(value=False) for name in ("start", "withdrawn")]
    gone = pl.any_horizontal(pl.col("start", "withdrawn").is_not_null())
    seen = pl.col("as_of").is_null() | (pl.col("as_of") >= until_ms - SEEN_WAITING_MS)
    return (pl.col("asked") < until_ms).fill_null(value=False) & (pl.any_horizontal(later) | (~gone & seen))


def _gave_up_in(window: tuple[int, int]) -> pl.Expr:
    last = pl.coalesce("withdrawn", "as_of")
    return pl.col("start").is_null() & last.is_between(*window, closed="left") & (pl.col("asked") < window[1])


def _queued(jobs: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """With `kind`, `hosts` and what REPLAY_JOB_SCHEMA has of the queue; jobs that do not say over how many hosts take as few as they can."""
    width = whole.group_by(*POOL_MODEL, "host").agg(width=pl.col("gpu").n_unique().cast(pl.Int64))
    widest = width.group_by(POOL_MODEL).agg(pl.col("width").max())
    fewest = (pl.col("gpus") + pl.col("width") - 1) // pl.col("width")
    found = jobs.with_columns(kind=work_kind()).join(widest, on=POOL_MODEL, how="left", maintain_order="left")
    return found.with_columns(
        host_count=pl.coalesce("host_count", fewest, pl.lit(1)),
        partition=pl.concat_str(pl.col("scheduler").fill_null(""), pl.lit(":"), "partition"),
        rank=pl.coalesce("qos", pl.col("priority").cast(pl.String)),
    )


def partition_key(scheduler: str | None, partition: str) -> str:
    """What REPLAY_JOB_SCHEMA calls a partition of a scheduler."""
    return f"{scheduler or ''}:{partition}"


def _rows_of(whole: pl.DataFrame, queued: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """The ledger's rows that each run of a queued job had, with NUMBERED_ROWS."""
    runs = queued.filter(pl.col("start") < until_ms)
    runs = runs.select("number", work="ledger_job", first="start", last=pl.col("end").fill_null(until_ms))
    rows = by_job(whole.select(NUMBERED_ROWS[1:])).join(runs, on="work")
    return clip(rows, "first", "last", sums=()).select(NUMBERED_ROWS)


def _bare(jobs: pl.DataFrame) -> pl.DataFrame:
    """Use without a job in the columns of queued jobs."""
    return jobs.with_columns(
        start="started", run_ms=pl.col("end") - pl.col("started"), host_count=pl.lit(1, pl.Int64)
    ).drop("started")


def _with_use(jobs: pl.DataFrame, rows: pl.DataFrame, needs: pl.DataFrame) -> pl.DataFrame:
    """With what the ledger saw of the jobs, and what they need of a GPU: the most over their GPUs, unknown where it is unknown of any."""
    used = idle_spells(rows, jobs.select("number", "gpus", started="start"))
    where = ("host", "gpu", "holder", "account", "job")
    runs = rows.select("number", *where).unique().join(needs, on=where, nulls_equal=True)
    most = runs.group_by("number").agg(
        pl.when(pl.col(name).null_count() == 0).then(pl.col(name).max()).alias(name)
        for name in ("need_bytes", "sm_pct")
    )
    return jobs.join(used, on="number", how="left").join(most, on="number", how="left")


def _conform(jobs: pl.DataFrame, since_ms: int, team_of: TeamOf) -> pl.DataFrame:
    pairs = jobs.select("user", "account").unique()
    teams = pairs.with_columns(team=pl.Series([team_of(*pair) for pair in pairs.iter_rows()], dtype=pl.String))
    found = jobs.join(teams, on=("user", "account"), how="left", nulls_equal=True).with_columns(
        asked=pl.max_horizontal("asked", pl.when(pl.col("asked").is_not_null()).then(since_ms)),
        is_deferrable=is_deferrable(),
        hosts="host_count",
        ran_ms="run_ms",
        limit_ms=pl.when(pl.col("time_limit_ms") > 0).then("time_limit_ms"),
        mem_bytes="need_bytes",
        started="start",
        ended="end",
        before_window=(pl.col("start") < since_ms).fill_null(value=False),
    )
    columns = [pl.col(name).cast(kind) for name, kind in REPLAY_JOB_SCHEMA.items()]
    return found.select(*columns, "rank").sort("number")
