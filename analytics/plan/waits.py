"""Who waited how long for GPUs, and why: each job's wait, cut to the window, with the time of each cause."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from analytics.intervals import SPAN_MS, merge
from analytics.plan.asked_models import AskedModels
from analytics.plan.idle_pool import WHOLE_POOL, IdlePool, Want
from analytics.plan.idle_pools import IdlePools, idle_pools
from analytics.plan.wait_causes import CAUSES, REMEDIES, SHORTAGE, Waiter, real_place, try_remedy
from analytics.plan.waiting_jobs import IS_COUNTED, PARTITION, POOL_MODEL, PoolModel, blocks, jobs_in_window, located

SIZES = {1: "1", 2: "2-3", 4: "4-7", 8: "8", 9: "9-16", 17: "17-64", 65: "65+"}
"""Sizes of jobs in GPUs, by the least of each."""

TIME_OF = {cause: f"{cause}_ms" for cause in CAUSES}
"""By cause the column with its time."""


_COLUMNS = (
    "job", "user", "team", "pool", "model", "partition", "rank", "size", "gpus", "begin", "until", "is_open", "is_ambiguous",
)  # fmt: skip


@dataclass(frozen=True)
class Waits:
    """The waits of a window, and what could not be counted.

    `rows` has a row for each job that asked for GPUs before the end of the window and did not have them before its start, those
    without any wait among them: `job`, `user`, `team`, `pool`, `model`, `partition`, `rank`, `size`, `gpus`, `begin`, `until`,
    `is_open` (it still waited at the end), and the time of each cause in ms (TIME_OF), which add up
    to `until - begin`. `is_ambiguous` is whether the pool is one of several in which jobs of the partition ran; it is null where
    nobody knows it. `left_out` has the jobs that could not be counted: `user`, `team`, `pool`, `model`, and `is_unasked`, whether
    the time at which they asked is missing, else it is their number of GPUs. `ran` has every job that had GPUs in the window: those four
    columns, `gpus`, `start`, `end` and `state`.

    `idle` is the GPU time that was `free`, `unused` or `unknown`: `pool`, `model`, `kind`, `gpu_ms`, and `waited_ms` of it in which any
    job waited.
    """

    rows: pl.DataFrame
    idle: pl.DataFrame
    since_ms: int
    until_ms: int
    left_out: pl.DataFrame
    ran: pl.DataFrame

    def where(self, *conditions: pl.Expr) -> Waits:
        """Those of some users, teams, pools or models alone; what stood idle stays."""
        frames = {name: getattr(self, name).filter(*conditions) for name in ("rows", "left_out", "ran")}
        return replace(self, **frames)


def find_waits(
    jobs: pl.DataFrame,
    placed: pl.DataFrame,
    memory_gib: Mapping[str, int | None],
    window: tuple[int, int],
    *,
    held_min_ms: int,
    team_of: Callable[[str | None, str | None], str | None] = lambda _user, _account: None,
) -> Waits:
    """The waits of a window and their causes.

    Args:
        jobs: with JOB_SCHEMA; also those before the window, which say which hosts a partition uses.
        placed: the ledger's rows of the window with `pool` and `model`.
        memory_gib: of the cards of each model, None where it is not known.
        window: its start and end, in ms.
        held_min_ms: held and reserved GPUs count as unused where they were so for at least this long.
        team_of: the team of a user and an account.
    """
    known, claimed = located(jobs, placed)
    claimed = claimed.with_columns(pl.col("end").fill_null(window[1]))
    there = _named(jobs_in_window(known, *window), team_of)
    runs = pl.col("start") < window[1], pl.col("end").is_null() | (pl.col("end") > window[0])
    idle = idle_pools(placed, claimed, memory_gib, window, held_min_ms)
    rows = _caused(
        there.filter(IS_COUNTED),
        idle,
        WaiterOptions(idle.pools, blocks(known, claimed), AskedModels.of(known)),
    )
    return Waits(
        rows=rows.select(*_COLUMNS, *TIME_OF.values()),
        idle=_idle_while(idle.spans, rows),
        since_ms=window[0],
        until_ms=window[1],
        left_out=there.filter(~IS_COUNTED).select(
            "user", "team", "pool", "model", is_unasked=pl.col("asked").is_null()
        ),
        ran=_named(known.filter(*runs), team_of).select(
            "user", "team", "pool", "model", "gpus", "start", "end", "state"
        ),
    )


def _caused(waiting: pl.DataFrame, idle: IdlePools, options: WaiterOptions) -> pl.DataFrame:
    """The waits with the time of each cause; of those whose pool nobody knows, all of it is unknown."""
    late = waiting.filter(pl.col("begin") < pl.col("until"))
    waiters = [_waiter(row, options, idle.split) for row in late.iter_rows(named=True)]
    numbers = late["number"].to_list()
    times: dict[str, list[int]] = {}
    for remedy in REMEDIES:
        before = [each.start for each in waiters]
        if _prepared(idle, remedy.cause, waiters):
            try_remedy(waiters, remedy)
        times[remedy.cause] = [was - each.start for was, each in zip(before, waiters, strict=True)]
    left = [(each.start - each.begin, not each.own) for each in waiters]
    times["unknown"] = [
        time + rest * is_unknown for time, (rest, is_unknown) in zip(times["unknown"], left, strict=True)
    ]
    times[SHORTAGE] = [rest * (not is_unknown) for rest, is_unknown in left]
    named = {TIME_OF[cause]: time for cause, time in times.items()}
    found = pl.DataFrame({"number": numbers} | named, schema={"number": pl.UInt32} | dict.fromkeys(named, pl.Int64))
    rows = waiting.join(found, on="number", how="left", maintain_order="left")
    return rows.with_columns(pl.col(*named).fill_null(0))


def _prepared(idle: IdlePools, cause: str, waiters: Sequence[Waiter]) -> bool:
    """Adds the GPUs that a remedy has beside those of the ones before; whether there is anything to try."""
    for pool in idle.pools.values():
        pool.forget_changes()
    if cause == "unused":
        moved = {each.job for each in waiters if each.has_moved}
        return idle.add_unused(moved, {each.job for each in waiters if each.waits} - moved)
    return cause != "unknown" or idle.add_unknown()


@dataclass(frozen=True)
class WaiterOptions:
    """Where jobs may run: the pools by pool and model, the hosts that each partition uses of a pool, and what names of models mean."""

    pools: Mapping[PoolModel, IdlePool]
    blocks: Mapping[tuple[str | None, str, str], Sequence[str]]
    models: AskedModels
    _known: dict[Sequence[str | None], tuple[Sequence[tuple[IdlePool, int]], Sequence[IdlePool]]] = field(
        default_factory=dict
    )

    def of(self, row: Mapping[str, Any]) -> tuple[Sequence[tuple[IdlePool, int]], Sequence[IdlePool]]:
        """`own` and `others` of a waiter; many jobs have the same."""
        key = tuple(row[name] for name in (*POOL_MODEL, "gpu_model", *PARTITION))
        if key not in self._known:
            self._known[key] = self._of(row)
        return self._known[key]

    def _of(self, row: Mapping[str, Any]) -> tuple[Sequence[tuple[IdlePool, int]], Sequence[IdlePool]]:
        """In its own pool what it asked for counts, and where it asked for nothing cards of at least as much memory; elsewhere both."""
        home = self.pools.get((row["pool"], row["model"]))
        if home is None:
            return (), ()
        asked, hosts = row["gpu_model"], self.blocks.get((row["scheduler"], row["partition"], row["pool"]))
        own, others = [home], []
        for (pool, model), each in self.pools.items():
            is_large = None not in (home.memory_gib, each.memory_gib) and (each.memory_gib or 0) >= (
                home.memory_gib or 0
            )
            if each is home or not self.models.fits(asked, model):
                continue
            if pool == row["pool"] and (asked or is_large):
                own.append(each)
            elif pool != row["pool"] and is_large:
                others.append(each)
        return [(each, WHOLE_POOL if hosts is None else each.area(hosts)) for each in own], others


def _waiter(row: Mapping[str, Any], options: WaiterOptions, split: Collection[str]) -> Waiter:
    (own, others), start = options.of(row), row["start"]
    home = own[0][0] if own else None
    run = row["run_ms"]
    return Waiter(
        job=row["ledger_job"],
        begin=row["begin"],
        until=row["until"],
        want=_want(row["gpus"], row["host_count"], home),
        run_ms=run,
        limit_ms=row["time_limit_ms"] or run,
        own=own,
        others=others,
        ran=None
        if home is None or start is None or row["ledger_job"] in split
        else real_place(home, row["hosts"], row["gpus"], start, start + run),
        start=row["until"],
    )


def _want(gpus: int, host_count: int | None, home: IdlePool | None) -> Want:
    """As it ran or asked for, where that was the same number on each host; else on one host, or on whole ones where it is larger."""
    if host_count:
        return Want(gpus, gpus // host_count if gpus % host_count == 0 else 0)
    width = gpus if home is None or gpus <= home.width else home.width
    return Want(gpus, width if gpus % width == 0 else 0)


def _named(jobs: pl.DataFrame, team_of: Callable[[str | None, str | None], str | None]) -> pl.DataFrame:
    """With what jobs are grouped by."""
    pairs = jobs.select("user", "account").unique()
    teams = pairs.with_columns(team=pl.Series([team_of(*pair) for pair in pairs.iter_rows()], dtype=pl.String))
    found = jobs.join(teams, on=("user", "account"), how="left", nulls_equal=True, maintain_order="left")
    return found.with_columns(
        rank=pl.coalesce("qos", pl.col("priority").cast(pl.String)),
        size=reduce(
            lambda smaller, each: pl.when(pl.col("gpus") >= each[0]).then(pl.lit(each[1])).otherwise(smaller),
            SIZES.items(),
            pl.lit(None, pl.String),
        ),
    )


def _idle_while(spans: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Idle GPU time by pool, model and kind, and the part of it in which any job waited."""
    waited = merge(waits.filter(pl.col("begin") < pl.col("until")).select(time="begin", end="until"), ())
    moments = np.ravel(waited.select("time", "end").to_numpy()) if waited.height else np.zeros(1)
    sums = np.cumsum(np.diff(moments, prepend=moments[0]) * (np.arange(len(moments)) % 2))
    until, since = (np.interp(spans[name].to_numpy(), moments, sums) for name in ("end", "time"))
    timed = spans.with_columns(gpu_ms=SPAN_MS, waited_ms=pl.Series(until - since, dtype=pl.Float64))
    key = (*POOL_MODEL, "kind")
    return timed.group_by(key).agg(pl.col("gpu_ms", "waited_ms").sum()).sort(key)
