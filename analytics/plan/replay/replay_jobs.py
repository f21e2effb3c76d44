"""The jobs of a window as they are replayed: rebuilt from the queue's data, and from use of GPUs without a job.

A job arrives when it could have begun, not when it started. Use without a job, and jobs without a known request time,
arrive when they started.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from analytics.capacity.jobs import COULD_BEGIN, POOL_MODEL, PoolModel, TeamOf, located, run_ms, with_teams
from analytics.intervals import clip, islands, levels, merge
from analytics.states import ALLOCATED, IDLE_ALLOCATED, IN_USE
from analytics.workloads.ledger_rows import by_job
from analytics.workloads.model import Context
from analytics.workloads.runs import busy_percentiles, runs_with_memory
from analytics.workloads.workloads import BUSY_SHARE, RUN_MIN_MS
from fallow.clock import HOUR_MS, MINUTE_MS

REPLAY_JOB_SCHEMA: dict[str, pl.DataType] = {
    "number": pl.UInt32(),
    **dict.fromkeys(("job", "user", "team", "pool", "model", "partition", "kind"), pl.String()),
    **dict.fromkeys(("gpus", "gpus_used", "hosts"), pl.Int32()),
    **dict.fromkeys(("asked", "ran_ms", "limit_ms", "used_ms"), pl.Int64()),
    "idle_intervals": pl.List(pl.Struct({"begin": pl.Int64, "end": pl.Int64})),
    "sm_pct": pl.Float64(),
    **dict.fromkeys(("mem_bytes", "priority", "started", "ended"), pl.Int64()),
    **dict.fromkeys(("is_deferrable", "before_window"), pl.Boolean()),
}
"""One row per job run; times are milliseconds since the epoch. Null is unknown, except where it says otherwise.

number       of the job, each once
kind         of work: notebook, serving, test or batch
gpus         it held, at least 1
gpus_used    of these that ever worked; the others are there because blocks are whole
hosts        over how many it was spread, at least 1; the GPUs of a job on one host have to fit on one
asked        when it could have begun: its submission, or the end of the last limit or hold, not its start;
             null: it arrives when it started
ran_ms       how long it held its GPUs
limit_ms     its time limit
used_ms      from its start to the last work on any of its GPUs; the rest of `ran_ms` is an idle tail
idle_intervals  when none of its GPUs worked, from its start, in order
mem_bytes    the most that it needs on any GPU
sm_pct       the most that it uses of one GPU, in percent of its SMs
priority     the scheduler's own number: more is more urgent
is_deferrable  its user would not mind that it runs at night
started, ended  the observed times
before_window  it ran when the window began: it holds its GPUs from `started` on, and is not judged
"""


KINDS = ("batch", "test", "notebook", "serving")
"""The kinds that `work_kind` may return."""

NIGHT_MS = 12 * HOUR_MS
"""What runs no longer than this is done by the morning."""

_NOTEBOOK = r"(?i)jupyter|notebook|interactive|ipython|vscode"
_SERVING = r"(?i)serv(e|ing)|inference|endpoint|vllm|sglang|triton|prod"
_TEST = r"(?i)test|debug"
AWAITED = f"{_NOTEBOOK}|{_SERVING.removeprefix('(?i)')}|debug"
"""How the names of jobs, partitions and QOS read for whose result a person or a customer waits."""
_TEXT_COLUMNS = ("name", "partition", "qos")


def work_kind() -> pl.Expr:
    """Return the kind of a job with JOB_SCHEMA and `run_ms`: notebook, serving, test or batch; null if unknown.

    It comes from name, partition and quality of service. A pod without a time limit serves, a job that ran for less
    than an hour is a test, any other job with a time limit is batch.
    """
    text = pl.concat_str(*(pl.col(name).fill_null("") for name in _TEXT_COLUMNS), separator=" ")
    has_limit = (pl.col("time_limit_ms") > 0).fill_null(value=False)
    was_short = (pl.col("end").is_not_null() & (pl.col("run_ms") < RUN_MIN_MS)).fill_null(value=False)
    return (
        pl.when(text.str.contains(_NOTEBOOK))
        .then(pl.lit("notebook"))
        .when(text.str.contains(_SERVING) | ((pl.col("scheduler") == "kubernetes") & ~has_limit).fill_null(value=False))
        .then(pl.lit("serving"))
        .when(text.str.contains(_TEST) | was_short)
        .then(pl.lit("test"))
        .when(has_limit)
        .then(pl.lit("batch"))
    )


def is_deferrable() -> pl.Expr:
    """Return whether a job with `kind`, `run_ms` and `host_count` may wait for the night: short batch work on one host.

    It ends by the morning, and its user does not watch it. Whether the user minds the wait is unknown.
    """
    is_batch = (pl.col("kind") == "batch").fill_null(value=False)
    return is_batch & (pl.col("host_count") == 1) & (pl.col("run_ms") <= NIGHT_MS)


NUMBERED_ROWS = ("number", "host", "gpu", "user", "account", "job", "time", "end", "state")
"""Columns of the ledger's whole GPUs by the job that had them (`number`); `job` is the ledger's jobs on the GPU."""


def idle_intervals(rows: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return how each job used its GPUs: `number`, `gpus_used`, `used_ms` and `idle_intervals` of REPLAY_JOB_SCHEMA.

    A job is idle while all of its GPUs are allocated and none of them works; unobserved time is not idle. Jobs whose
    GPUs were not all observed are left out. Idle intervals that began before the window are known from its start on.

    `rows` has NUMBERED_ROWS; `jobs` has `number`, `gpus` and `started`.
    """
    in_use = pl.col("state").is_in(IN_USE)
    seen = rows.group_by("number").agg(
        seen=pl.col("gpu").n_unique(),
        gpus_used=pl.col("gpu").filter(in_use).n_unique().cast(pl.Int32),
        last_use=pl.col("end").filter(in_use).max(),
    )
    known = jobs.join(seen, on="number").filter(pl.col("seen") >= pl.col("gpus"))
    idle_intervals = _all_idle(rows.join(known.select("number", "seen"), on="number"))
    timed = idle_intervals.join(known.select("number", "started"), on="number").select(
        "number",
        idle_intervals=pl.struct(begin=pl.col("time") - pl.col("started"), end=pl.col("end") - pl.col("started")),
    )
    by_job = timed.group_by("number", maintain_order=True).agg("idle_intervals")
    found = known.select("number", "gpus_used", used_ms=pl.col("last_use") - pl.col("started"))
    none = pl.lit([], by_job.schema["idle_intervals"])
    return found.join(by_job, on="number", how="left").with_columns(pl.col("idle_intervals").fill_null(none))


def _all_idle(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `number`, `time` and `end` of the times in which as many GPUs of a job were idle as it has (`seen`)."""
    idle = rows.filter(pl.col("state").is_in(IDLE_ALLOCATED))
    spans = levels(idle, ("number", "seen")).filter(pl.col("level") == pl.col("seen"))
    return merge(spans, ("number",))


TOGETHER_MS = 5 * MINUTE_MS
"""GPUs that one user takes, and lets go, within so long of one another are one job."""

_WHOSE = ("host", *POOL_MODEL, "user", "account", "job")


def bare_jobs(whole: pl.DataFrame, allocated: pl.DataFrame, first_number: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return jobs for rows without a job of the queue, numbered from `first_number` on, and their NUMBERED_ROWS.

    The jobs have `number`, POOL_MODEL, `user`, `account`, `gpus`, `started` and `end`. A user's rows on a host on which
    the user's job runs are that job's: only the number of its GPUs is then known.

    `whole` has POOL_MODEL; `allocated` is that of `analytics.capacity.jobs.allocated_spans`, with all ends.
    """
    held = whole.filter(pl.col("state").is_in(ALLOCATED)).with_row_index("row")
    known = by_job(held).join(allocated.select(work="job").unique(), on="work", how="semi")
    rows = _without_known_job(held.join(known.select("row").unique(), on="row", how="anti"), allocated)
    stays = _stays(rows)
    jobs = stays.group_by("number", *_WHOSE, maintain_order=True).agg(
        gpus=pl.col("gpu").n_unique(), started=pl.col("time").min(), end=pl.col("end").max()
    )
    numbers = jobs.select("number", renumbered=pl.int_range(first_number, first_number + jobs.height, dtype=pl.UInt32))
    own = rows.join(stays.select("gpu", "number", first="time", last="end"), on="gpu")
    own = own.filter(pl.col("time") >= pl.col("first"), pl.col("end") <= pl.col("last"))
    named = [each.join(numbers, on="number").with_columns(number="renumbered") for each in (jobs, own)]
    return named[0].drop("renumbered", "job"), named[1].select(NUMBERED_ROWS)


def _without_known_job(rows: pl.DataFrame, allocated: pl.DataFrame) -> pl.DataFrame:
    numbered = rows.filter(pl.col("job").is_null())
    spans = allocated.drop_nulls("user").select("host", "user", first="time", last="end")
    met = numbered.select("row", "host", "user", "time", "end").join(spans, on=("host", "user"))
    taken = met.filter(pl.col("time") < pl.col("last"), pl.col("end") > pl.col("first"))
    return rows.join(taken.select("row").unique(), on="row", how="anti").drop("row")


def _stays(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a user's unbroken uses of GPUs: `time`, `end`, _WHOSE and the `number` of the job that has them."""
    ordered = rows.select("gpu", *_WHOSE, "time", "end").sort("gpu", "time")
    stays = (
        ordered.with_columns(stay=islands(("gpu", *_WHOSE)))
        .group_by("stay", maintain_order=True)
        .agg(pl.col("gpu", *_WHOSE).first(), pl.col("time").min(), pl.col("end").max())
    )
    begun = _clustered(stays, (*_WHOSE,), "time", "began")
    return _clustered(begun, (*_WHOSE, "began"), "end", "number")


def _clustered(stays: pl.DataFrame, by: tuple[str, ...], moment: str, name: str) -> pl.DataFrame:
    """Return the stays with a number in `name`, shared by those of one `by` within TOGETHER_MS of each other."""
    ordered = stays.sort(*by, moment, "gpu", nulls_last=True)
    return ordered.with_columns(islands(by, TOGETHER_MS, start=moment, end=moment).alias(name))


SEEN_WAITING_MS = HOUR_MS
"""A job without GPUs still waits where it was seen to wait so shortly before the end of the window."""

_ON_GPU = ("host", "gpu", "user", "account", "job")
WORK_NEEDS = dict.fromkeys(_ON_GPU, pl.String()) | {"need_bytes": pl.Int64(), "sm_pct": pl.Float64()}
"""What work needs of a GPU; null is unknown."""


@dataclass(frozen=True)
class RebuiltJobs:
    """What is replayed, and how many jobs are left out."""

    jobs: pl.DataFrame
    """With REPLAY_JOB_SCHEMA, and `rank`: quality of service, else priority, as in `analytics.plan.queue_waits`."""
    never_ran: int
    """Jobs that gave up, or were not seen any more."""
    unplaced: int
    """Jobs without a number of GPUs or a known pool, and those on MIG instances."""

    @property
    def queued(self) -> int:
        """Return the number of jobs known to the queue; the others are use without a job."""
        return self.jobs["job"].drop_nulls().len()

    @property
    def unasked(self) -> int:
        """Return the number of queued jobs without a known request time."""
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
    """Return the jobs that ran in a window or waited at its end.

    `jobs` has JOB_SCHEMA, with those before the window, which show which pool a partition uses; `placed` has `pool`,
    `model` and `instance`; `needs` has WORK_NEEDS. Only jobs of the pools and models in `places` count.
    """
    whole = placed.filter(~pl.col("instance"))
    located_jobs, allocated = located(jobs, whole)
    known = located_jobs.filter(in_places(places) | pl.col("pool").is_null())
    asked = known.with_columns(asked=_SET_FREE).with_columns(run_ms=run_ms("asked", window[1]))
    there = asked.filter(_ran_in(window) | _waits_at(window[1]))
    on_parts = by_job(placed.filter("instance"))["work"].unique()
    is_placed = (pl.col("gpus") > 0).fill_null(value=False) & pl.col("pool").is_not_null()
    queued = _queued(there.filter(is_placed, ~pl.col("ledger_job").is_in(on_parts.implode())), whole)
    spans = allocated.with_columns(pl.col("end").fill_null(window[1]))
    bare, bare_rows = bare_jobs(whole.filter(in_places(places)), spans, jobs.height)
    rows = pl.concat([_rows_of(whole, queued, window[1]), bare_rows])
    found = pl.concat([queued, _bare(bare)], how="diagonal_relaxed")
    return RebuiltJobs(
        jobs=_conform(_with_use(found, rows, needs), window[0], team_of),
        never_ran=asked.filter(_gave_up_in(window) & ~_ran_in(window) & ~_waits_at(window[1])).height,
        unplaced=there.height - queued.height,
    )


_SET_FREE = pl.when(COULD_BEGIN.is_not_null()).then(
    pl.max_horizontal(COULD_BEGIN, pl.col("held").list.eval(pl.element().struct.field("end")).list.max())
)
"""When a job could have begun, and no limit or hold named by its scheduler kept it: from then on it waited for GPUs."""


def in_places(places: Collection[PoolModel]) -> pl.Expr:
    """Return whether a row with POOL_MODEL is of one of these."""
    return pl.any_horizontal(
        pl.lit(value=False), *((pl.col("pool") == pool) & (pl.col("model") == model) for pool, model in sorted(places))
    )


def _ran_in(window: tuple[int, int]) -> pl.Expr:
    begun = (pl.col("start") < window[1]).fill_null(value=False)
    return begun & (pl.col("end").is_null() | (pl.col("end") > window[0]))


def _waits_at(until_ms: int) -> pl.Expr:
    """Return whether a job is known to wait at a moment."""
    later = [(pl.col(name) >= until_ms).fill_null(value=False) for name in ("start", "withdrawn")]
    gone = pl.any_horizontal(pl.col("start", "withdrawn").is_not_null())
    seen = pl.col("as_of").is_null() | (pl.col("as_of") >= until_ms - SEEN_WAITING_MS)
    return (pl.col("asked") < until_ms).fill_null(value=False) & (pl.any_horizontal(later) | (~gone & seen))


def _gave_up_in(window: tuple[int, int]) -> pl.Expr:
    last = pl.coalesce("withdrawn", "as_of")
    return pl.col("start").is_null() & last.is_between(*window, closed="left") & (pl.col("asked") < window[1])


def _queued(jobs: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with `kind`, `partition`, `rank` and `host_count`: the fewest possible hosts if unknown."""
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
    """Return the name of a scheduler's partition in REPLAY_JOB_SCHEMA."""
    return f"{scheduler or ''}:{partition}"


def _rows_of(whole: pl.DataFrame, queued: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Return the ledger's rows of each run of a queued job, with NUMBERED_ROWS."""
    runs = queued.filter(pl.col("start") < until_ms)
    runs = runs.select("number", work="ledger_job", first="start", last=pl.col("end").fill_null(until_ms))
    rows = by_job(whole.select(NUMBERED_ROWS[1:])).join(runs, on="work")
    return clip(rows, "first", "last", sums=()).select(NUMBERED_ROWS)


def _bare(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return use without a job in the columns of queued jobs."""
    return jobs.with_columns(
        start="started", run_ms=pl.col("end") - pl.col("started"), host_count=pl.lit(1, pl.Int64)
    ).drop("started")


def _with_use(jobs: pl.DataFrame, rows: pl.DataFrame, needs: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with their observed use, and the most that they need of a GPU; null if unknown for any GPU."""
    used = idle_intervals(rows, jobs.select("number", "gpus", started="start"))
    runs = rows.select("number", *_ON_GPU).unique().join(needs, on=_ON_GPU, nulls_equal=True)
    most = runs.group_by("number").agg(
        pl.when(pl.col(name).null_count() == 0).then(pl.col(name).max()).alias(name)
        for name in ("need_bytes", "sm_pct")
    )
    return jobs.join(used, on="number", how="left").join(most, on="number", how="left")


def _conform(jobs: pl.DataFrame, since_ms: int, team_of: TeamOf) -> pl.DataFrame:
    found = with_teams(jobs, team_of).with_columns(
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


def work_needs(context: Context) -> pl.DataFrame:
    """Return one row per GPU, user and job, with WORK_NEEDS.

    `need_bytes` is that of right-sizing, null where memory is reserved ahead. `sm_pct` is the SM activity that is not
    exceeded for 95 % of the time; where that was not measured, the time with any kernel, which is more.
    """
    found = busy_percentiles(context, runs_with_memory(context), BUSY_SHARE)
    return found.with_columns(sm_pct=pl.coalesce("sm_pct", "util_pct")).select(
        pl.col(name).cast(kind) for name, kind in WORK_NEEDS.items()
    )
