"""Jobs of the queue: which of them waited for GPUs in a window, from when to when, and in which pool.

The jobs come from the `allocation` table, which has jobs with GPUs, and from `request`, which has jobs without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from analytics.allocations.spans import FOREVER_MS, known_allocations, ledger_job
from analytics.capacity.causes import NOT_YET, cause_of
from analytics.cards import is_called
from analytics.frames import read_frame, with_mapped
from analytics.intervals import SPAN_MS, by_hour
from analytics.ledger.usage import job_names
from analytics.small_tables import read_small
from fallow import schema
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from fallow.lake import Lake

_TEXTS = ("name", "user", "account", "project", "partition", "qos", "state", "gpu_model", "reason")
_TIMES = ("submitted", "eligible", "start", "end", "withdrawn", "as_of", "time_limit_ms", "planned_end")
JOB_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("scheduler", "job", *_TEXTS), pl.String()),
    **dict.fromkeys(("priority", *_TIMES, "gpus", "host_count"), pl.Int64()),
    "hosts": pl.List(pl.String()),
    "held": pl.List(pl.Struct({"time": pl.Int64(), "end": pl.Int64(), "cause": pl.String()})),
}
"""Columns of `load_jobs`, with times in milliseconds.

- `submitted`: submission time. `eligible`: earliest possible start; null if known only as `submitted`.
- `start`: null if the job never had a GPU. Then `withdrawn` is its withdrawal, null while it waits, and `as_of` the
  time at which it was last observed waiting.
- `end`: null while the job runs, and if unknown. `planned_end`: end by the time limit.
- `gpus`: GPUs of the whole job, null if unknown. `hosts`: hosts of the run, empty before it.
- `held`: times of the wait in which the scheduler named a hold, with the name of its cause
  (`analytics.capacity.causes`), in order; null for none.
"""

_WAITED_UNTIL = pl.coalesce("start", "withdrawn", "as_of")
"""End of a job's wait; null where it was not observed."""

_JOB = ("scheduler", "allocation_id")
_RUN = (*_JOB, "start")
LATE_MS = 5 * MINUTE_MS
"""Schedulers end jobs within minutes of their limit."""

_NUMBERS = ("priority", "submitted", "eligible", "planned_end", "time_limit_s", "host_count")


def load_jobs(lake: Lake) -> pl.DataFrame:
    """Return every job of a lake, a row per run, with JOB_SCHEMA, by `submitted`; raises LakeError and its kinds."""
    allocations = read_small(lake, schema.ALLOCATION, schema.ALLOCATION.names)
    return jobs_of(allocations, read_small(lake, schema.REQUEST, schema.REQUEST.names))


def with_allocation_facts(segments: pl.DataFrame, jobs: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the ledger's rows with these columns of the row's job; null if the row has several jobs or none.

    `jobs` has JOB_SCHEMA.
    """
    newest = pl.col(names).drop_nulls().last()
    facts = jobs.group_by(_job="job", maintain_order=True).agg(newest)
    workloads = job_names()
    alone = pl.when(workloads.list.len() == 1).then(workloads.list.first().str.replace(r"^[a-z]+:", ""))
    return segments.with_columns(_job=alone).join(facts, on="_job", how="left", maintain_order="left").drop("_job")


WITHHELD_SCHEMA = {"host": pl.String(), "time": pl.Int64(), "end": pl.Int64(), "cause": pl.String(), "gpus": pl.Int64()}
"""Times in which a scheduler may not allocate GPUs of a host: `cause` is its name, `gpus` null means all GPUs."""


def load_withheld(lake: Lake) -> pl.DataFrame:
    """Return the withheld GPUs (WITHHELD_SCHEMA), in observed hours only. Raises LakeError and its kinds."""
    rows = read_frame(lake.files(schema.WITHHELD.name), schema.WITHHELD, None, lake.left_out.leave_out)
    seen = rows.group_by("scheduler", "name", "time", host="node", cause="kind").agg(
        end=pl.min_horizontal(pl.col("end").max(), pl.col("as_of").max()),
        gpus=pl.col("gpu_count").sort_by("as_of").last(),
    )
    spans = seen.filter(pl.col("time") < pl.col("end")).sort("host", "time", "cause")
    return spans.select(pl.col(name).cast(kind) for name, kind in WITHHELD_SCHEMA.items())


def ended_by_limit(jobs: pl.DataFrame, seen_ms: int) -> pl.DataFrame:
    """Return the jobs; a run without a reported end ends at its planned end, if that has passed.

    Its `state` is then null. `jobs` has JOB_SCHEMA; the lake was filled up to `seen_ms`.
    """
    is_over = pl.col("start").is_not_null() & pl.col("end").is_null() & (pl.col("planned_end") < seen_ms - LATE_MS)
    return jobs.with_columns(
        end=pl.when(is_over).then("planned_end").otherwise("end"),
        state=pl.when(~is_over.fill_null(value=False)).then("state"),
    )


def jobs_of(allocations: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs in the rows of both tables, with JOB_SCHEMA, by `submitted`.

    A job that got GPUs after it was observed waiting is in the result once, as an allocation.
    """
    started = _started(allocations)
    waiting = _waiting(requests, started)
    jobs = pl.concat([_conform(started), _conform(waiting)])
    reasons = requests.select("as_of", "reason", scheduler="scheduler", job="allocation_id", submitted="time")
    return _with_held(jobs, reasons).sort("submitted", "start", "scheduler", "job", nulls_last=True)


def _with_held(jobs: pl.DataFrame, reasons: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with `held`.

    A moment has the next reason that a source observed. Moments after the last observation have the last reason.
    Accounting reports a job's last reason only after its start. Without any other source, the whole wait has this
    reason.
    """
    key = ["scheduler", "job", "submitted"]
    runs = jobs.select(*key, "start", own="reason", begin=pl.coalesce("eligible", "submitted"), last=_WAITED_UNTIL)
    runs = runs.drop_nulls(["begin", "last"]).unique([*key, "start"], keep="first", maintain_order=True)
    seen = runs.join(reasons.drop_nulls("reason").unique(), on=key, nulls_equal=True).filter(
        pl.col("as_of") <= pl.col("last")
    )
    alone = runs.join(seen, on=[*key, "start"], how="anti", nulls_equal=True)
    alone = alone.with_columns(as_of="last", reason="own").drop_nulls("reason")
    run = [*key, "start"]
    ordered = pl.concat([seen, alone.select(seen.columns)]).sort(*run, "as_of")
    spans = ordered.with_columns(
        time=pl.max_horizontal("begin", pl.col("as_of").shift(1).over(run)),
        end=pl.when(pl.col("as_of") == pl.col("as_of").max().over(run)).then("last").otherwise("as_of"),
        cause=cause_of(pl.col("reason")),
    )
    held = spans.drop_nulls("cause").filter(pl.col("time") < pl.col("end"))
    by_run = held.group_by(run, maintain_order=True).agg(held=pl.struct("time", "end", "cause"))
    return (
        jobs.drop("held").join(by_run, on=run, how="left", nulls_equal=True, maintain_order="left").select(*JOB_SCHEMA)
    )


def _conform(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.select(
        (pl.col(name) if name in jobs.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in JOB_SCHEMA.items()
    )


def _started(allocations: pl.DataFrame) -> pl.DataFrame:
    """Return a row per run that had GPUs."""
    counted = pl.col("gpu").is_null()
    rows = known_allocations(allocations)
    runs = rows.group_by(_RUN).agg(
        pl.col("end").max(),
        pl.col(*_TEXTS, *_NUMBERS).max(),
        total=pl.col("gpu_count").max(),
        hosts=pl.col("host").unique().sort(),
        named=pl.col("gpu").drop_nulls().n_unique().cast(pl.Int64),
        counted=pl.col("host_gpu_count").filter(counted).sum().cast(pl.Int64),
        is_uncounted=(counted & pl.col("host_gpu_count").is_null()).any(),
        is_share=pl.col("gpu_share_ratio").is_not_null().any(),
    )
    stated = allocations.group_by("scheduler", "allocation_id", start="time").agg(
        is_over=pl.col("end").is_not_null().any()
    )
    runs = runs.join(stated, on=_RUN, how="left", nulls_equal=True)
    limit_ms = pl.coalesce(pl.col("time_limit_s") * SECOND_MS, pl.col("planned_end") - pl.col("start"))
    # a run followed by another run of the same job is over; a run that only its limit ends may still run
    is_over = pl.col("is_over") | (pl.col("end") < pl.col("planned_end").fill_null(FOREVER_MS))
    return runs.with_columns(
        job="allocation_id",
        end=pl.when(is_over).then("end").otherwise(None),
        # a share occupies no whole GPU, so how many of them its job needs is unknown
        gpus=pl.when(~pl.col("is_share")).then(
            pl.when("is_uncounted").then("total").otherwise(pl.col("named") + pl.col("counted"))
        ),
        host_count=pl.coalesce("host_count", pl.col("hosts").list.len()),
        time_limit_ms=limit_ms,
        planned_end=pl.coalesce("planned_end", pl.col("start") + limit_ms),
    )


def _waiting(requests: pl.DataFrame, started: pl.DataFrame) -> pl.DataFrame:
    """Return a row per job without GPUs, as last observed. Each task of an array is a job."""
    newest = requests.sort("as_of", "time").unique((*_JOB, "time"), keep="last", maintain_order=True)
    is_last = pl.col("time").shift(-1).over(_JOB).is_null()  # a job waits once at a time
    newest = newest.filter(pl.col("withdrawn").is_not_null() | (pl.col("granted").is_null() & is_last))
    begun = started.group_by(_JOB).agg(last_start=pl.col("start").max())
    open_ones = newest.join(begun, on=_JOB, how="left", nulls_equal=True).filter(
        pl.col("last_start").is_null() | (pl.col("last_start") < pl.col("time"))
    )
    tasks = open_ones.with_columns(task=pl.int_ranges(pl.col("task_count").fill_null(1))).explode("task")
    return tasks.with_columns(
        job="allocation_id",
        submitted="time",
        gpus="gpu_count",
        hosts=pl.lit([], pl.List(pl.String)),
        time_limit_ms=pl.col("time_limit_s") * SECOND_MS,
    )


@dataclass(frozen=True)
class AskedModels:
    """The meaning of requested GPU model names."""

    got: frozenset[tuple[str, str]]
    """Pairs of a requested name and a model on which such jobs ran."""

    @classmethod
    def of(cls, jobs: pl.DataFrame) -> AskedModels:
        """Return the names from jobs with `gpu_model` and the `model` of their run.

        This is how names that only the site uses are learned.
        """
        return cls(frozenset(jobs.select("gpu_model", "model").drop_nulls().unique().iter_rows()))

    def fits(self, asked: str | None, model: str) -> bool:
        """Return whether a model matches a request; null matches any model."""
        return asked is None or (asked, model) in self.got or is_called(asked, model)


PoolModel: TypeAlias = tuple[str, str]
POOL_MODEL = ("pool", "model")


@dataclass(frozen=True)
class QueueOrder:
    """How a scheduler chooses the next job: strictly in order or not, and whether higher priorities come first."""

    in_order: bool = False
    by_priority: bool = False


TeamOf = Callable[[str | None, str | None], str | None]
"""Returns the team of a user and an account; None is unknown."""

PARTITION = ("scheduler", "partition")

COULD_BEGIN = pl.coalesce(
    "eligible", pl.when(~pl.col("reason").is_in(NOT_YET).fill_null(value=False)).then("submitted")
)
"""When a job asked for GPUs: its earliest possible start, else its submission.

Null if unknown, and for jobs that wait for something else than GPUs.
"""

IS_COUNTED = pl.col("asked").is_not_null() & (pl.col("gpus") > 0).fill_null(value=False)
"""For rows of `jobs_in_window`: whether the time of the request and the number of GPUs are known."""


def located(jobs: pl.DataFrame, placed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the jobs with `number`, `ledger_job` and the columns of `with_pools`, and their `allocated_spans`.

    `jobs` has JOB_SCHEMA; `placed` are the ledger's rows of the window with `pool` and `model`.
    """
    named = jobs.with_columns(ledger_job=ledger_job("job")).with_row_index("number")
    allocated = allocated_spans(named)
    return with_pools(named, allocated, hosts_of_pools(placed)), allocated


def hosts_of_pools(placed: pl.DataFrame) -> dict[PoolModel, tuple[str, ...]]:
    """Return the hosts by pool and model, largest pools first. A host is in the pool with most of its GPU time."""
    times = placed.group_by("host", *POOL_MODEL).agg(time=SPAN_MS.sum())
    most = times.sort("host", "time", *POOL_MODEL, descending=[False, True, False, False]).unique(
        "host", keep="first", maintain_order=True
    )
    by_place = most.group_by(POOL_MODEL).agg(pl.col("host").sort())
    hosts = by_place.sort(pl.col("host").list.len(), *POOL_MODEL, descending=[True, False, False])
    return {(pool, model): tuple(own) for pool, model, own in hosts.iter_rows()}


def allocated_spans(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return each job's GPUs by host: `number`, `job`, `user`, `host`, `time`, `end` (null: runs) and `gpus`.

    `job` is its name in the ledger. A job's GPUs are spread evenly over its hosts.

    `jobs` has JOB_SCHEMA, `number` and `ledger_job`.
    """
    ran = jobs.filter(pl.col("start").is_not_null(), pl.col("gpus") > 0, pl.col("hosts").list.len() > 0)
    hosts, place = pl.col("hosts").list.len(), pl.int_ranges(pl.col("hosts").list.len())
    spread = ran.select(
        "number", "user", "gpus", "end", host="hosts", job="ledger_job", time="start", place=place, hosts=hosts
    )
    own = spread.explode("host", "place")
    share = pl.col("gpus") // pl.col("hosts") + (pl.col("place") < pl.col("gpus") % pl.col("hosts"))
    return own.select("number", "job", "user", "host", "time", "end", gpus=share).filter(pl.col("gpus") > 0)


def with_pools(jobs: pl.DataFrame, allocated: pl.DataFrame, places: Mapping[PoolModel, Sequence[str]]) -> pl.DataFrame:
    """Return the jobs with `pool`, `model` and `is_ambiguous`.

    Pool and model are those of most of the job's GPUs. A job that never ran gets the pool and model of most jobs of its
    partition, among the models that it requested. `is_ambiguous`: those jobs ran in several pools. Null if unknown.

    `jobs` has JOB_SCHEMA and `number`; `allocated` is that of `allocated_spans`.
    """
    rows = [(host, *place) for place, own in places.items() for host in own]
    hosts = pl.DataFrame(rows, schema=dict.fromkeys(("host", *POOL_MODEL), pl.String), orient="row")
    parts = allocated.join(hosts, on="host").group_by("number", *POOL_MODEL).agg(pl.col("gpus").sum())
    ordered = parts.sort("number", "gpus", *POOL_MODEL, descending=[False, True, False, False])
    own = ordered.unique("number", keep="first", maintain_order=True).select("number", *POOL_MODEL)
    found = jobs.join(own, on="number", how="left", maintain_order="left")
    used, models = _used(found), AskedModels.of(found)
    schema = {"usual_pool": pl.String(), "usual_model": pl.String(), "several": pl.Boolean()}
    found = with_mapped(
        found, (*PARTITION, "gpu_model"), schema, lambda *of: _home(used.get(of[:2], ()), of[2], places, models)
    )
    return found.with_columns(
        pool=pl.coalesce("pool", "usual_pool"),
        model=pl.coalesce("model", "usual_model"),
        is_ambiguous=(pl.col("pool").is_null() & pl.col("several")).fill_null(value=False),
    ).drop(schema)


def _used(jobs: pl.DataFrame) -> Mapping[tuple[str | None, str], Sequence[PoolModel]]:
    """Return the pools and models in which the jobs of each partition ran, the most frequent first."""
    ran = jobs.drop_nulls(["pool", "partition"]).group_by(*PARTITION, *POOL_MODEL).len()
    ordered = ran.sort("len", *POOL_MODEL, descending=[True, False, False])
    used: dict[tuple[str | None, str], list[PoolModel]] = {}
    for scheduler, partition, pool, model in ordered.select(*PARTITION, *POOL_MODEL).iter_rows():
        used.setdefault((scheduler, partition), []).append((pool, model))
    return used


def _home(
    used: Sequence[PoolModel], asked: str | None, places: Iterable[PoolModel], models: AskedModels
) -> tuple[str | None, str | None, bool]:
    """Return pool and model of a job that never ran, and whether its partition has several pools.

    If there is only one pool, it is every job's pool.
    """
    pools = {pool for pool, _ in used} or {pool for pool, _ in places}
    if not used and len(pools) > 1:
        return None, None, False
    known = [place for place in (*used, *places) if place[0] in pools and models.fits(asked, place[1])]
    return (*known[0], len({pool for pool, _ in known}) > 1) if known else (None, None, False)


def jobs_in_window(jobs: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Return the jobs that waited or got GPUs in the window, in the order of their waits' ends.

    Added columns: `asked`, `begin`, `until`, `is_open` and `run_ms`.

    A wait lasts from the job's earliest possible start, else from its submission, until its start or withdrawal, or
    until it was last observed waiting. `begin` and `until` are cut to the window. `is_open`: the job still waited then.
    `run_ms`: see `run_ms`. `asked` is null if unknown, and for jobs that could not start yet for another reason than
    GPUs.
    """
    over = pl.coalesce("start", "withdrawn")
    last = pl.coalesce(over, "as_of", pl.lit(until_ms))
    timed = jobs.with_columns(asked=COULD_BEGIN, last=last)
    there = timed.filter(pl.coalesce("asked", "submitted", "last") < until_ms, pl.col("last") >= since_ms)
    stop = pl.min_horizontal("last", pl.lit(until_ms))
    return (
        there.with_columns(
            begin=pl.max_horizontal(pl.min_horizontal("asked", stop), pl.lit(since_ms)),
            until=stop,
            is_open=over.is_null() | (over >= until_ms),
        )
        .with_columns(run_ms=run_ms("begin", until_ms))
        .sort("last", "begin", "priority", "number", descending=[False, False, True, False])
    )


def run_ms(asked: str, until_ms: int) -> pl.Expr:
    """Return a job's run time, from its columns.

    A job that runs at the window's end counts up to then, or its time limit if that is longer. A job that has not
    started by then counts its time limit; without a limit, the time from its request to the window's end.

    `asked` is the column with the begin of the wait.
    """
    limit = pl.when(pl.col("time_limit_ms") > 0).then("time_limit_ms")
    so_far = pl.when(pl.col("start") < until_ms).then(until_ms - pl.col("start"))
    return (
        pl.when(pl.col("end").is_not_null() & pl.col("start").is_not_null())
        .then((pl.col("end") - pl.col("start")).clip(lower_bound=1))
        .when(so_far.is_not_null())
        .then(pl.max_horizontal(so_far, limit))
        .otherwise(pl.coalesce(limit, until_ms - pl.col(asked)))
    )


def blocks(jobs: pl.DataFrame, allocated: pl.DataFrame) -> dict[tuple[str | None, str, str], list[str]]:
    """Return the hosts of a pool on which jobs of a scheduler's partition ever ran.

    Other hosts of the pool are not in its block.
    """
    ran = allocated.join(jobs.select("number", *PARTITION, "pool"), on="number").drop_nulls(["partition", "pool"])
    hosts = ran.group_by(*PARTITION, "pool").agg(pl.col("host").unique())
    return {(scheduler, partition, pool): own for scheduler, partition, pool, own in hosts.iter_rows()}


def with_teams(jobs: pl.DataFrame, team_of: TeamOf) -> pl.DataFrame:
    return with_mapped(jobs, ("user", "account"), {"team": pl.String()}, lambda *whose: (team_of(*whose),))


def waiting(jobs: pl.DataFrame, placed: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """Return the GPUs that queued jobs could have used: `pool`, `model`, `time`, `end`, `gpus`, `user` and `account`.

    A job counts from its earliest possible start to its start. Times in which the scheduler held it for another reason
    than GPUs are left out. The rest counts for no longer than the run time, after which the job would have been done.
    Jobs without a known pool are left out.

    `jobs` has JOB_SCHEMA; `placed` are the ledger's rows of the window: `host`, `time`, `end`, `pool` and `model`.
    """
    known, _ = located(jobs, placed)
    queued = jobs_in_window(known, *window).filter(
        IS_COUNTED, pl.col("pool").is_not_null(), pl.col("until") > pl.col("begin")
    )
    held = pl.col("held").fill_null([])
    begins, ends = (held.list.eval(pl.element().struct.field(name)) for name in ("time", "end"))
    # between holds: from its begin, or the end of a hold, to the next hold, or its end
    queued = queued.with_columns(pl.col("begin", "until").cast(pl.Int64))
    free = queued.with_columns(time=pl.concat_list("begin", ends), end=pl.concat_list(begins, "until"))
    free = free.explode("time", "end").with_columns(
        time=pl.max_horizontal("time", "begin"), end=pl.min_horizontal("end", "until")
    )
    free = free.filter(pl.col("time") < pl.col("end")).sort("number", "time")
    left_ms = pl.col("run_ms") - (SPAN_MS.cum_sum().over("number") - SPAN_MS)
    return free.select(
        *POOL_MODEL,
        "time",
        end=pl.min_horizontal("end", pl.col("time") + left_ms).cast(pl.Int64),
        gpus=pl.col("gpus").cast(pl.Float64),
        user="user",
        account="account",
    ).filter(pl.col("time") < pl.col("end"))


def queued_hours(waits: pl.DataFrame, name: str = "queued") -> pl.DataFrame:
    """Return the GPUs that jobs waited for by `pool`, `model` and `time` (hour): ten minutes count a sixth.

    `waits` are rows of `waiting`; `name` is the column for the GPUs.
    """
    gpus = pl.col("gpus") * SPAN_MS / HOUR_MS
    return by_hour(waits).group_by(*POOL_MODEL, time="hour").agg(gpus.sum().alias(name))
