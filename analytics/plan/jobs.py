"""Jobs as the queue knows them, which of them waited for GPUs in a window, from when to when, and in which pool.

They come from the `claim` table, which has those that were given GPUs, and from `request`, which has those that were not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from analytics.allocations.spans import FOREVER_MS, known_allocations, ledger_job
from analytics.frames import read_frame, with_mapped
from analytics.intervals import SPAN_MS
from analytics.money.cards import is_called
from analytics.small_tables import read_small
from fallow import schema
from fallow.clock import MINUTE_MS, SECOND_MS
from fallow.lake import Lake

_TEXTS = ("name", "user", "account", "project", "partition", "qos", "state", "gpu_model")
_TIMES = ("submitted", "eligible", "start", "end", "withdrawn", "as_of", "time_limit_ms", "planned_end")
JOB_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("scheduler", "job", *_TEXTS, "reason"), pl.String()),
    **dict.fromkeys(("priority", *_TIMES, "gpus", "host_count"), pl.Int64()),
    "hosts": pl.List(pl.String()),
}
"""Columns of `load_jobs`, times in milliseconds.

`submitted` is when it asked, `eligible` from when on it could have begun (null: not known apart from `submitted`). `start` is
null where it never had a GPU; then `withdrawn` is when it gave up, null while it waits, and `as_of` when it was last seen to
wait. `end` is null while it runs, and where nobody stated it. `planned_end` is when its time limit ends it at the latest. `gpus` are those of the whole
job, null where unknown; `hosts` those that it ran on, empty before.
"""

_JOB = ("scheduler", "claim_id")
_RUN = (*_JOB, "start")
LATE_MS = 5 * MINUTE_MS
"""Schedulers end jobs within minutes of their limit."""

_NUMBERS = ("priority", "submitted", "eligible", "planned_end", "time_limit_s", "host_count")


def load_jobs(lake: Lake) -> pl.DataFrame:
    """Every job of a lake, one row per run, with JOB_SCHEMA, by `submitted`; raises LakeError and its kinds."""
    claims = read_small(lake, schema.CLAIM, schema.CLAIM.names)
    requests = read_frame(lake.files(schema.REQUEST.name), schema.REQUEST, None, lake.left_out.leave_out)
    return jobs_of(claims, requests)


def ended_by_limit(jobs: pl.DataFrame, seen_ms: int) -> pl.DataFrame:
    """The same; a run of which nobody stated the end is over at its planned end where that has passed, nobody knows how.

    Args:
        jobs: with JOB_SCHEMA.
        seen_ms: up to when the lake was filled.
    """
    is_over = pl.col("start").is_not_null() & pl.col("end").is_null() & (pl.col("planned_end") < seen_ms - LATE_MS)
    return jobs.with_columns(
        end=pl.when(is_over).then("planned_end").otherwise("end"),
        state=pl.when(~is_over.fill_null(value=False)).then("state"),
    )


def jobs_of(claims: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """The jobs in rows of both tables, with JOB_SCHEMA, by `submitted`.

    A job that was given GPUs since it was seen to wait is there once, as what it became.
    """
    started = _started(claims)
    waiting = _waiting(requests, started)
    parts = [_conform(started), _conform(waiting)]
    return pl.concat(parts).sort("submitted", "start", "scheduler", "job", nulls_last=True)


def _conform(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.select(
        (pl.col(name) if name in jobs.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in JOB_SCHEMA.items()
    )


def _started(claims: pl.DataFrame) -> pl.DataFrame:
    """One row per run that was given GPUs."""
    counted = pl.col("gpu").is_null()
    rows = known_allocations(claims)
    runs = rows.group_by(_RUN).agg(
        pl.col("end").max(),
        pl.col(*_TEXTS, *_NUMBERS).max(),
        total=pl.col("gpu_count").max(),
        hosts=pl.col("host").unique().sort(),
        named=pl.col("gpu").drop_nulls().n_unique().cast(pl.Int64),
        counted=pl.col("host_gpu_count").filter(counted).sum().cast(pl.Int64),
        is_uncounted=(counted & pl.col("host_gpu_count").is_null()).any(),
    )
    stated = claims.group_by("scheduler", "claim_id", start="time").agg(is_over=pl.col("end").is_not_null().any())
    runs = runs.join(stated, on=_RUN, how="left", nulls_equal=True)
    limit_ms = pl.coalesce(pl.col("time_limit_s") * SECOND_MS, pl.col("planned_end") - pl.col("start"))
    # a run that another one of the same job followed is over; one that its limit alone ends may still run
    is_over = pl.col("is_over") | (pl.col("end") < pl.col("planned_end").fill_null(FOREVER_MS))
    return runs.with_columns(
        job="claim_id",
        end=pl.when(is_over).then("end").otherwise(None),
        gpus=pl.when("is_uncounted").then("total").otherwise(pl.col("named") + pl.col("counted")),
        host_count=pl.coalesce("host_count", pl.col("hosts").list.len()),
        time_limit_ms=limit_ms,
        planned_end=pl.coalesce("planned_end", pl.col("start") + limit_ms),
    )


def _waiting(requests: pl.DataFrame, started: pl.DataFrame) -> pl.DataFrame:
    """One row per job without GPUs, as it was last seen; each task of an array is one."""
    newest = requests.sort("as_of", "time").unique((*_JOB, "time"), keep="last", maintain_order=True)
    is_last = pl.col("time").shift(-1).over(_JOB).is_null()  # a job waits once at a time
    newest = newest.filter(pl.col("withdrawn").is_not_null() | (pl.col("granted").is_null() & is_last))
    begun = started.group_by(_JOB).agg(last_start=pl.col("start").max())
    open_ones = newest.join(begun, on=_JOB, how="left", nulls_equal=True).filter(
        pl.col("last_start").is_null() | (pl.col("last_start") < pl.col("time"))
    )
    tasks = open_ones.with_columns(task=pl.int_ranges(pl.col("task_count").fill_null(1))).explode("task")
    return tasks.with_columns(
        job="claim_id",
        submitted="time",
        gpus="gpu_count",
        hosts=pl.lit([], pl.List(pl.String)),
        time_limit_ms=pl.col("time_limit_s") * SECOND_MS,
    )


@dataclass(frozen=True)
class AskedModels:
    """What names of GPU models mean; `got` are pairs of a name that jobs asked for and a model on which such jobs ran."""

    got: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, jobs: pl.DataFrame) -> AskedModels:
        """From jobs with `gpu_model` and the `model` that they ran on: names that only the site knows are learnt so."""
        return cls(frozenset(jobs.select("gpu_model", "model").drop_nulls().unique().iter_rows()))

    def fits(self, asked: str | None, model: str) -> bool:
        """Whether a model is what was asked for; null: any."""
        return asked is None or (asked, model) in self.got or is_called(asked, model)


PoolModel: TypeAlias = tuple[str, str]
POOL_MODEL = ("pool", "model")
"""What GPUs are told apart by: their pool and their model."""

TeamOf = Callable[[str | None, str | None], str | None]
"""The team of a user and an account; None is unknown."""

PARTITION = ("scheduler", "partition")
"""What tells partitions apart."""

_NOT_YET = ("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser")
"""Reasons of Slurm (squeue, JOB REASON CODES) for which a job waits for something else than GPUs, by its user's own wish."""

COULD_BEGIN = pl.coalesce(
    "eligible", pl.when(~pl.col("reason").is_in(_NOT_YET).fill_null(value=False)).then("submitted")
)
"""When a job asked: from when on it could have begun, else when it was submitted; null where nobody knows, and of jobs that wait for something else than GPUs."""

IS_COUNTED = pl.col("asked").is_not_null() & (pl.col("gpus") > 0).fill_null(value=False)
"""Of rows of `jobs_in_window`: whether it is known when the job asked, and for how many GPUs."""


def located(jobs: pl.DataFrame, placed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The jobs with `number`, `ledger_job` and the columns of `with_pools`, and what each had, see `claimed_spans`.

    Args:
        jobs: with JOB_SCHEMA.
        placed: the ledger's rows of the window with `pool` and `model`.
    """
    named = jobs.with_columns(ledger_job=ledger_job("job")).with_row_index("number")
    claimed = claimed_spans(named)
    return with_pools(named, claimed, hosts_of_pools(placed)), claimed


def hosts_of_pools(placed: pl.DataFrame) -> dict[PoolModel, tuple[str, ...]]:
    """The hosts of each pool and model, each in the one that most of its GPU time was in; those with most hosts first."""
    times = placed.group_by("host", *POOL_MODEL).agg(time=SPAN_MS.sum())
    most = times.sort("host", "time", *POOL_MODEL, descending=[False, True, False, False]).unique(
        "host", keep="first", maintain_order=True
    )
    by_place = most.group_by(POOL_MODEL).agg(pl.col("host").sort())
    hosts = by_place.sort(pl.col("host").list.len(), *POOL_MODEL, descending=[True, False, False])
    return {(pool, model): tuple(own) for pool, model, own in hosts.iter_rows()}


def claimed_spans(jobs: pl.DataFrame) -> pl.DataFrame:
    """What each job had on each host: `number`, `job` (as the ledger calls it), `user`, `host`, `time`, `end` (null: runs) and `gpus`.

    A job's GPUs are spread evenly over its hosts.

    Args:
        jobs: with JOB_SCHEMA, `number` and `ledger_job`.
    """
    ran = jobs.filter(pl.col("start").is_not_null(), pl.col("gpus") > 0, pl.col("hosts").list.len() > 0)
    hosts, place = pl.col("hosts").list.len(), pl.int_ranges(pl.col("hosts").list.len())
    spread = ran.select(
        "number", "user", "gpus", "end", host="hosts", job="ledger_job", time="start", place=place, hosts=hosts
    )
    own = spread.explode("host", "place")
    share = pl.col("gpus") // pl.col("hosts") + (pl.col("place") < pl.col("gpus") % pl.col("hosts"))
    return own.select("number", "job", "user", "host", "time", "end", gpus=share).filter(pl.col("gpus") > 0)


def with_pools(jobs: pl.DataFrame, claimed: pl.DataFrame, places: Mapping[PoolModel, Sequence[str]]) -> pl.DataFrame:
    """The jobs with `pool`, `model` and `is_ambiguous`.

    Pool and model are those that most of a job's GPUs lay in. Of a job that ran nowhere they are those in which most jobs of its
    partition ran, among the models that it asked for; where those ran in several pools it is ambiguous. Null where nobody knows.

    Args:
        jobs: with JOB_SCHEMA and `number`.
        claimed: see `claimed_spans`.
        places: the hosts of each pool and model.
    """
    rows = [(host, *place) for place, own in places.items() for host in own]
    hosts = pl.DataFrame(rows, schema=dict.fromkeys(("host", *POOL_MODEL), pl.String), orient="row")
    parts = claimed.join(hosts, on="host").group_by("number", *POOL_MODEL).agg(pl.col("gpus").sum())
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
    """Where the jobs of each partition ran, most of them first."""
    ran = jobs.drop_nulls(["pool", "partition"]).group_by(*PARTITION, *POOL_MODEL).len()
    ordered = ran.sort("len", *POOL_MODEL, descending=[True, False, False])
    used: dict[tuple[str | None, str], list[PoolModel]] = {}
    for scheduler, partition, pool, model in ordered.select(*PARTITION, *POOL_MODEL).iter_rows():
        used.setdefault((scheduler, partition), []).append((pool, model))
    return used


def _home(
    used: Sequence[PoolModel], asked: str | None, places: Iterable[PoolModel], models: AskedModels
) -> tuple[str | None, str | None, bool]:
    """Pool and model of a job that ran nowhere, and whether its partition has several pools; the only pool there is, is everybody's."""
    pools = {pool for pool, _ in used} or {pool for pool, _ in places}
    if not used and len(pools) > 1:
        return None, None, False
    known = [place for place in (*used, *places) if place[0] in pools and models.fits(asked, place[1])]
    return (*known[0], len({pool for pool, _ in known}) > 1) if known else (None, None, False)


def jobs_in_window(jobs: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Jobs that waited in the window or got GPUs in it, with `asked`, `begin`, `until` and `is_open`, as their waits ended.

    A wait lasts from when the job could have begun, else from when it was submitted, until it began or was withdrawn, or until
    it was last seen to wait; `begin` and `until` are cut to the window. `is_open` is whether it still waited then, `run_ms` see `run_ms`. `asked` is
    null where nobody knows when it was, and of jobs that could not begin yet for another reason than GPUs.
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
    """How long a job ran, from its columns; one that still runs at the window's end up to then, or for its time limit where that is longer.

    One that has not begun by then would run for its time limit, one without any up to the window's end.

    Args:
        asked: the column that says from when on it waited.
        until_ms: the window's end.
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


def blocks(jobs: pl.DataFrame, claimed: pl.DataFrame) -> dict[tuple[str | None, str, str], list[str]]:
    """The hosts that jobs of a scheduler's partition ever ran on in a pool: others of the pool are none of its block."""
    ran = claimed.join(jobs.select("number", *PARTITION, "pool"), on="number").drop_nulls(["partition", "pool"])
    hosts = ran.group_by(*PARTITION, "pool").agg(pl.col("host").unique())
    return {(scheduler, partition, pool): own for scheduler, partition, pool, own in hosts.iter_rows()}


def with_teams(jobs: pl.DataFrame, team_of: TeamOf) -> pl.DataFrame:
    """The jobs with `team`."""
    return with_mapped(jobs, ("user", "account"), {"team": pl.String()}, lambda *whose: (team_of(*whose),))
