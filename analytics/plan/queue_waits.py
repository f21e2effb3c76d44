"""Who waited how long for GPUs, and why: each wait with the time of each cause, waits added up, and what GPU time led to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from analytics.intervals import SPAN_MS, merge
from analytics.plan.idle_pool import WHOLE_POOL, IdlePool, IdlePools, Want, idle_pools
from analytics.plan.jobs import (
    IS_COUNTED,
    PARTITION,
    POOL_MODEL,
    AskedModels,
    PoolModel,
    TeamOf,
    blocks,
    jobs_in_window,
    located,
    with_teams,
)
from analytics.plan.wait_causes import CAUSES, REMEDIES, SHORTAGE, Waiter, real_place, try_remedy

SIZES = {1: "1", 2: "2-3", 4: "4-7", 8: "8", 9: "9-16", 17: "17-64", 65: "65+"}
"""Sizes of jobs in GPUs, by the least of each."""

TIME_OF = {cause: f"{cause}_ms" for cause in CAUSES}
"""By cause the column with its time."""


_WHOSE = ("user", "team", "pool", "model")
_COLUMNS = ("job", *_WHOSE, "partition", "rank", "size", "gpus", "begin", "until", "is_open", "is_ambiguous")


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
    team_of: TeamOf = lambda _user, _account: None,
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
        there.filter(IS_COUNTED), idle, WaiterOptions(idle.pools, blocks(known, claimed), AskedModels.of(known))
    )
    return Waits(
        rows=rows.select(*_COLUMNS, *TIME_OF.values()),
        idle=_idle_while(idle.spans, rows),
        since_ms=window[0],
        until_ms=window[1],
        left_out=there.filter(~IS_COUNTED).select(_WHOSE, is_unasked=pl.col("asked").is_null()),
        ran=_named(known.filter(*runs), team_of).select(*_WHOSE, "gpus", "start", "end", "state"),
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


def _named(jobs: pl.DataFrame, team_of: TeamOf) -> pl.DataFrame:
    """With what jobs are grouped by."""
    return with_teams(jobs, team_of).with_columns(
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


GROUPS = ("pool", "size", "team", "partition", "rank")
"""What waits are added up by, as columns of their rows."""


@dataclass(frozen=True)
class WaitGroup:
    """Waits of some jobs; `name` is None where it is not known.

    `open_jobs` still waited at the end. The median and the nine of ten are of all jobs, those without a wait among them, None
    where there is none. `wait_ms` is job time, `gpu_ms` the same times the GPUs of each; `cause_ms` and `cause_gpu_ms` are parts of it.
    """

    name: str | None
    jobs: int
    open_jobs: int
    median_ms: float | None
    p90_ms: float | None
    wait_ms: int
    gpu_ms: int
    cause_ms: Mapping[str, int]
    cause_gpu_ms: Mapping[str, int]

    def share(self, cause: str) -> float | None:
        """Which part of the time has the cause; None where nobody waited."""
        return self.cause_ms[cause] / self.wait_ms if self.wait_ms else None

    @property
    def shortage(self) -> tuple[float | None, float | None]:
        """Least and most of the part that only more GPUs cure: what nobody saw may be shortage as well."""
        least, unknown = self.share(SHORTAGE), self.share("unknown")
        return least, None if least is None or unknown is None else least + unknown


def in_all(waits: Waits) -> WaitGroup:
    """All waits."""
    return _group(None, waits.rows)


def wait_groups(waits: Waits, by: str) -> list[WaitGroup]:
    """One for each value of a column of GROUPS, the longest waits first."""
    found = [_group(name, rows) for (name,), rows in waits.rows.partition_by(by, as_dict=True).items()]
    return sorted(found, key=lambda each: (-each.wait_ms, each.name or ""))


def halves(waits: Waits) -> tuple[WaitGroup, WaitGroup]:
    """What was waited in the first and in the second half of the window."""
    middle = (waits.since_ms + waits.until_ms) // 2
    return _group(None, _part(waits.rows, waits.since_ms, middle)), _group(
        None, _part(waits.rows, middle, waits.until_ms)
    )


def _part(rows: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """The part of each wait in [since, until): the last cause comes first in it, and the first one last."""
    stop, columns = pl.col("begin"), {}
    for cause in reversed(CAUSES):
        start, stop = stop, stop + pl.col(TIME_OF[cause])
        columns[TIME_OF[cause]] = stop.clip(since_ms, until_ms) - start.clip(since_ms, until_ms)
    inside = rows.with_columns(
        begin=pl.col("begin").clip(since_ms, until_ms), until=pl.col("until").clip(since_ms, until_ms), **columns
    )
    return inside.filter(pl.col("begin") < pl.col("until"))


def _group(name: str | None, rows: pl.DataFrame) -> WaitGroup:
    wait = pl.col("until") - pl.col("begin")
    sums = rows.select(
        jobs=pl.len(),
        open_jobs=pl.col("is_open").sum(),
        median_ms=wait.median(),
        p90_ms=wait.quantile(0.9, "linear"),
        wait_ms=wait.sum(),
        gpu_ms=(wait * pl.col("gpus")).sum(),
    ).row(0, named=True)
    times = rows.select(TIME_OF.values()).sum().row(0)
    gpu_times = rows.select(pl.col(name) * pl.col("gpus") for name in TIME_OF.values()).sum().row(0)
    return WaitGroup(
        name,
        **sums,
        cause_ms=dict(zip(CAUSES, times, strict=True)),
        cause_gpu_ms=dict(zip(CAUSES, gpu_times, strict=True)),
    )


RUNNING, UNKNOWN = "running", "unknown"

_WORDS: Mapping[str, str] = {
    "COMPLETED": "completed",
    "SUCCEEDED": "completed",
    "FINISHED": "completed",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "TIMEOUT": "timed out",
    "DEADLINE": "timed out",
    "DEADLINEEXCEEDED": "timed out",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "EVICTED": "preempted",
    "NODE_FAIL": "host failed",
    "BOOT_FAIL": "host failed",
    "NODELOST": "host failed",
}
"""How a scheduler's word for a job's end is counted: Slurm's job states, and the phases of pods and conditions of Kueue."""

END_STATES = (*dict.fromkeys(_WORDS.values()), RUNNING, UNKNOWN)


@dataclass(frozen=True)
class Goodput:
    """GPU time of a window by END_STATES, and how many jobs each has; what nobody said is unknown, never completed."""

    gpu_ms: Mapping[str, int]
    jobs: Mapping[str, int]

    @property
    def completed_share(self) -> float | None:
        """The part of the time whose end is known that led to completed jobs; None where no end is known."""
        known = sum(spent for state, spent in self.gpu_ms.items() if state not in (RUNNING, UNKNOWN))
        return self.gpu_ms["completed"] / known if known else None


def goodput(jobs: pl.DataFrame, since_ms: int, until_ms: int) -> Goodput:
    """How the GPU time of a window ended.

    Args:
        jobs: with `gpus`, `start`, `end` and `state`, one row per run; those without a number of GPUs and those that never began are left out.
        since_ms: start of the window.
        until_ms: its end.
    """
    word = pl.col("state").str.to_uppercase().str.extract(r"^([A-Z_]+)")
    ended = word.replace_strict(_WORDS, default=UNKNOWN, return_dtype=pl.String).fill_null(UNKNOWN)
    runs = pl.col("end").is_null() | (pl.col("end") > until_ms)
    stop = pl.min_horizontal(pl.col("end").fill_null(until_ms), pl.lit(until_ms))
    spent = (
        jobs.filter(pl.col("start").is_not_null())
        .select(
            ended=pl.when(runs).then(pl.lit(RUNNING)).otherwise(ended),
            gpu_ms=(stop - pl.max_horizontal("start", pl.lit(since_ms))) * pl.col("gpus"),
        )
        .filter(pl.col("gpu_ms") > 0)
    )
    sums = {
        state: (time, count)
        for state, time, count in spent.group_by("ended").agg(pl.col("gpu_ms").sum(), pl.len()).iter_rows()
    }
    return Goodput(
        {state: sums.get(state, (0, 0))[0] for state in END_STATES},
        {state: sums.get(state, (0, 0))[1] for state in END_STATES},
    )
