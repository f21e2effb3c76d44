"""Which jobs waited for GPUs in a window, from when to when, and in which pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import polars as pl

from analytics.allocations.spans import ledger_job
from analytics.plan.asked_models import AskedModels

PoolModel: TypeAlias = tuple[str, str]
POOL_MODEL = ("pool", "model")
"""What GPUs are told apart by: their pool and their model."""

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
    times = placed.group_by("host", *POOL_MODEL).agg(time=(pl.col("end") - pl.col("time")).sum())
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
    kinds = found.filter(pl.col("pool").is_null()).select(*PARTITION, "gpu_model").unique()
    used, models = _used(found), AskedModels.of(found)
    homes = [
        _home(used.get((scheduler, name), ()), asked, places, models) for scheduler, name, asked in kinds.iter_rows()
    ]
    schema = {"usual_pool": pl.String, "usual_model": pl.String, "several": pl.Boolean}
    usual = pl.concat([kinds, pl.DataFrame(homes, schema=schema, orient="row")], how="horizontal")
    found = found.join(usual, on=(*PARTITION, "gpu_model"), how="left", nulls_equal=True, maintain_order="left")
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
