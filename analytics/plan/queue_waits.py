"""Queue waits: every wait split by cause, sums over jobs, and how the jobs that used GPU time ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from analytics.capacity.causes import CAUSES, SHORTAGE, UNKNOWN
from analytics.capacity.jobs import (
    IS_COUNTED,
    PARTITION,
    POOL_MODEL,
    AskedModels,
    PoolModel,
    QueueOrder,
    TeamOf,
    blocks,
    jobs_in_window,
    located,
    with_teams,
)
from analytics.intervals import SPAN_MS, clip, merge
from analytics.plan.idle_pool import WHOLE_POOL, WITHHELD, IdlePool, IdlePools, Want, idle_pools
from analytics.plan.wait_causes import Waiter, real_place, remedies, try_remedy

SIZES = {1: "1", 2: "2-3", 4: "4-7", 8: "8", 9: "9-16", 17: "17-64", 65: "65+"}
"""Names of job sizes in GPUs, by the smallest size of each."""

_OWNER = ("user", "team", "pool", "model")
_COLUMNS = ("number", "job", *_OWNER, "partition", "rank", "size", "gpus", "begin", "until", "is_open", "is_ambiguous")
_SPANS = {"number": pl.UInt32(), "cause": pl.String(), "time": pl.Int64(), "end": pl.Int64()}


@dataclass(frozen=True)
class QueueWaits:
    """The queue waits of a window, and the jobs that could not be counted."""

    rows: pl.DataFrame
    """A row for each job submitted before the window's end and started after its beginning, with or without a wait.

    Columns: `number`, `job`, `user`, `team`, `pool`, `model`, `partition`, `rank` (QOS or priority), `size` (a name of
    SIZES), `gpus`, `begin` and `until` of the wait in ms, `is_open` (the job still waited at the end), and
    `is_ambiguous` (the pool is one of several of the job's partition; null where the pool is unknown).
    """
    spans: pl.DataFrame
    """The waits, cut into times with a single cause: the `number` of the row, `cause`, `time` and `end`."""
    idle: pl.DataFrame
    """Idle GPU time: `pool`, `model`, `kind` (`free`, one of WITHHELD, `unused` or `unknown`), `gpu_ms`, and
    `waited_ms`, its part while any job waited."""
    since_ms: int
    until_ms: int
    left_out: pl.DataFrame
    """Jobs not counted: `user`, `team`, `pool`, `model`, `lacks_submission_time` (else they lack a GPU count)."""
    ran: pl.DataFrame
    """Jobs that had GPUs in the window: `user`, `team`, `pool`, `model`, `gpus`, `start`, `end` and `state`."""
    order: QueueOrder
    """How the scheduler orders jobs, according to the replay."""

    @property
    def knows_jobs(self) -> bool:
        """Return whether any job of the window is known, counted or not."""
        return not all(jobs.is_empty() for jobs in (self.rows, self.left_out, self.ran))

    def where(self, *conditions: pl.Expr) -> QueueWaits:
        """Return the jobs that meet the conditions on user, team, pool or model; idle time is not filtered."""
        frames = {name: getattr(self, name).filter(*conditions) for name in ("rows", "left_out", "ran")}
        spans = self.spans.join(frames["rows"].select("number"), on="number", how="semi", maintain_order="left")
        return replace(self, spans=spans, **frames)


def find_waits(
    jobs: pl.DataFrame,
    placed: pl.DataFrame,
    memory_gib: Mapping[str, int | None],
    window: tuple[int, int],
    *,
    held_min_ms: int,
    order: QueueOrder,
    withheld: pl.DataFrame,
    is_past: bool = False,
    team_of: TeamOf = lambda _user, _account: None,
) -> QueueWaits:
    """Return the queue waits of a window with their causes.

    Args:
        jobs: with JOB_SCHEMA; earlier jobs show which hosts a partition uses.
        placed: the ledger's rows of the window with `pool` and `model`.
        memory_gib: memory of a card by model; None is unknown.
        window: start and end, in ms.
        held_min_ms: GPUs that are held idle, stalled or allocated without a process count as unused after this time.
        order: how the scheduler orders jobs, according to the replay.
        withheld: GPUs that the scheduler may not allocate, with WITHHELD_SCHEMA.
        is_past: whether the lake has rows after the window. Jobs that ended later then count as running, as at the
            time.
        team_of: returns the team of a user and an account.
    """
    known, allocated = located(jobs, placed)
    allocated = allocated.with_columns(pl.col("end").fill_null(window[1]))
    named = _named(jobs_in_window(known, *window), team_of)
    runs = pl.col("start") < window[1], pl.col("end").is_null() | (pl.col("end") > window[0])
    end = pl.when(~(pl.lit(is_past) & (pl.col("end") > window[1]))).then("end")
    idle = idle_pools(placed, allocated, memory_gib, window, held_min_ms, withheld=withheld)
    counted = named.filter(IS_COUNTED)
    spans = _causes(counted, idle, WaiterOptions(idle.pools, blocks(known, allocated), AskedModels.of(known)), order)
    return QueueWaits(
        rows=counted.select(_COLUMNS),
        spans=spans,
        idle=_idle_while(idle.spans, counted),
        since_ms=window[0],
        until_ms=window[1],
        left_out=named.filter(~IS_COUNTED).select(_OWNER, lacks_submission_time=pl.col("asked").is_null()),
        ran=_named(known.filter(*runs), team_of).select(*_OWNER, "gpus", "start", end, "state"),
        order=order,
    )


def _causes(waiting: pl.DataFrame, idle: IdlePools, options: WaiterOptions, order: QueueOrder) -> pl.DataFrame:
    """Return `QueueWaits.spans`. Without a known pool, the time that the scheduler does not explain is unknown."""
    late = waiting.filter(pl.col("begin") < pl.col("until"))
    blocked = _blocked_until(late, options, order)
    waiters = [_waiter(row, options, idle.split, blocked[row["number"]]) for row in late.iter_rows(named=True)]
    numbers = late["number"].to_list()
    found: list[tuple[int, str, int, int]] = []
    for remedy in remedies(in_order=order.in_order):
        before = [waiter.start for waiter in waiters]
        if _prepared(idle, remedy.cause, waiters):
            try_remedy(waiters, remedy)
        for number, waiter, until_ms in zip(numbers, waiters, before, strict=True):
            found += [(number, remedy.cause, *span) for span in waiter.not_held(waiter.start, until_ms)]
    for number, waiter in zip(numbers, waiters, strict=True):
        rest = SHORTAGE if waiter.own else UNKNOWN
        found += [(number, rest, *span) for span in waiter.not_held(waiter.begin, waiter.start)]
    reported = late.select("number", "begin", "until", held="held").explode("held").drop_nulls("held").unnest("held")
    held = clip(reported, "begin", "until", sums=()).select(pl.col(name).cast(kind) for name, kind in _SPANS.items())
    return pl.concat([held, pl.DataFrame(found, schema=_SPANS, orient="row")]).sort("number", "time")


def _blocked_until(waiting: pl.DataFrame, options: WaiterOptions, order: QueueOrder) -> Mapping[int, int]:
    """Return by a job's number until when a job ahead of it waits for hosts of the same pool and model."""
    ranked = ["priority"] if order.by_priority else []
    turns = waiting.sort(
        *ranked, "asked", "number", descending=[*(True for _ in ranked), False, False], nulls_last=True
    )
    last: dict[PoolModel, dict[frozenset[str], int]] = defaultdict(dict)
    found = {}
    for row in turns.iter_rows(named=True):
        place, hosts = (row["pool"], row["model"]), options.hosts_of(row)
        before = (until for own, until in last[place].items() if not hosts or not own or hosts & own)
        found[row["number"]] = max(before, default=0)
        last[place][hosts] = max(last[place].get(hosts, 0), row["until"])
    return found


def _prepared(idle: IdlePools, cause: str, waiters: Sequence[Waiter]) -> bool:
    """Add the GPUs of a remedy to those of the earlier remedies; return whether there is anything to try."""
    for pool in idle.pools.values():
        pool.forget_changes()
    if cause in WITHHELD:
        return idle.give_out(cause)
    if cause == "unused":
        moved = {waiter.job for waiter in waiters if waiter.has_moved}
        return idle.add_unused(moved, {waiter.job for waiter in waiters if waiter.waits} - moved)
    return cause != UNKNOWN or idle.add_unknown()


@dataclass(frozen=True)
class WaiterOptions:
    """Where jobs may run."""

    pools: Mapping[PoolModel, IdlePool]
    blocks: Mapping[tuple[str | None, str, str], Sequence[str]]
    """Hosts by scheduler, partition and pool."""
    models: AskedModels
    """The models that a requested name stands for."""
    _known: dict[Sequence[str | None], tuple[Sequence[tuple[IdlePool, int]], Sequence[IdlePool]]] = field(
        default_factory=dict
    )

    def hosts_of(self, row: Mapping[str, Any]) -> frozenset[str]:
        """Return the hosts of the job's pool that its partition uses; empty if unknown."""
        return frozenset(self.blocks.get((row["scheduler"], row["partition"], row["pool"]), ()))

    def of(self, row: Mapping[str, Any]) -> tuple[Sequence[tuple[IdlePool, int]], Sequence[IdlePool]]:
        """Return `own` and `others` of a Waiter, cached: many jobs share them."""
        key = tuple(row[name] for name in (*POOL_MODEL, "gpu_model", *PARTITION))
        if key not in self._known:
            self._known[key] = self._of(row)
        return self._known[key]

    def _of(self, row: Mapping[str, Any]) -> tuple[Sequence[tuple[IdlePool, int]], Sequence[IdlePool]]:
        """Return the parts of the job's pool with matching cards, each with an area, and those of other pools.

        Cards match the requested model. Without a request, and in other pools, they have at least as much memory.
        """
        home = self.pools.get((row["pool"], row["model"]))
        if home is None:
            return (), ()
        asked, hosts = row["gpu_model"], self.blocks.get((row["scheduler"], row["partition"], row["pool"]))
        own, others = [home], []
        for (pool, model), idle_pool in self.pools.items():
            is_large = None not in (home.memory_gib, idle_pool.memory_gib) and (idle_pool.memory_gib or 0) >= (
                home.memory_gib or 0
            )
            if idle_pool is home or not self.models.fits(asked, model):
                continue
            if pool == row["pool"] and (asked or is_large):
                own.append(idle_pool)
            elif pool != row["pool"] and is_large:
                others.append(idle_pool)
        return [(pool, WHOLE_POOL if hosts is None else pool.area(hosts)) for pool in own], others


def _waiter(row: Mapping[str, Any], options: WaiterOptions, split: Collection[str], blocked_until: int) -> Waiter:
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
        held=[(span["time"], span["end"]) for span in row["held"] or ()],
        blocked_until=blocked_until,
    )


def _want(gpus: int, host_count: int | None, home: IdlePool | None) -> Want:
    """Return the job's shape: as many GPUs on each of its hosts, else a single host, or whole hosts if it is larger."""
    if host_count:
        return Want(gpus, gpus // host_count if gpus % host_count == 0 else 0)
    width = gpus if home is None or gpus <= home.width else home.width
    return Want(gpus, width if gpus % width == 0 else 0)


def _named(jobs: pl.DataFrame, team_of: TeamOf) -> pl.DataFrame:
    """Return the jobs with the columns of GROUPS."""
    return with_teams(jobs, team_of).with_columns(
        rank=pl.coalesce("qos", pl.col("priority").cast(pl.String)),
        size=reduce(
            lambda smaller, size: pl.when(pl.col("gpus") >= size[0]).then(pl.lit(size[1])).otherwise(smaller),
            SIZES.items(),
            pl.lit(None, pl.String),
        ),
    )


def _idle_while(spans: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Return idle GPU time by pool, model and kind, and its part while any job waited."""
    waited = merge(waits.filter(pl.col("begin") < pl.col("until")).select(time="begin", end="until"), ())
    moments = np.ravel(waited.select("time", "end").to_numpy()) if waited.height else np.zeros(1)
    sums = np.cumsum(np.diff(moments, prepend=moments[0]) * (np.arange(len(moments)) % 2))
    until, since = (np.interp(spans[name].to_numpy(), moments, sums) for name in ("end", "time"))
    timed = spans.with_columns(gpu_ms=SPAN_MS, waited_ms=pl.Series(until - since, dtype=pl.Float64))
    key = (*POOL_MODEL, "kind")
    return timed.group_by(key).agg(pl.col("gpu_ms", "waited_ms").sum()).sort(key)


GROUPS = ("pool", "size", "team", "partition", "rank")
"""Columns of QueueWaits.rows by which waits are summed."""


@dataclass(frozen=True)
class WaitGroup:
    """The summed queue waits of some jobs."""

    name: str | None
    """The value of the group's column; None is unknown."""
    jobs: int
    """Jobs with and without a wait."""
    open_jobs: int
    """Jobs that still waited at the end of the window."""
    median_ms: float | None
    """Median wait of all jobs; None without jobs."""
    p90_ms: float | None
    """Wait that 90 % of the jobs do not exceed; None without jobs."""
    wait_ms: int
    gpu_ms: int
    """Sum of the waits, each times the GPUs of the job."""
    cause_ms: Mapping[str, int]
    cause_gpu_ms: Mapping[str, int]

    def share(self, cause: str) -> float | None:
        """Return the share of the wait with this cause; None without any wait."""
        return self.share_of((cause,))

    def share_of(self, causes: Collection[str]) -> float | None:
        """Return the share of the wait with any of these causes; None without any wait."""
        return sum(self.cause_ms[cause] for cause in causes) / self.wait_ms if self.wait_ms else None

    @property
    def shortage(self) -> tuple[float | None, float | None]:
        """Return the lowest and highest share that shortage may have: unknown causes may be shortage too."""
        least, unknown = self.share(SHORTAGE), self.share(UNKNOWN)
        return least, None if least is None or unknown is None else least + unknown


def all_waits(waits: QueueWaits) -> WaitGroup:
    return _group(None, waits.rows, waits.spans)


def wait_groups(waits: QueueWaits, by: str) -> list[WaitGroup]:
    """Return the sums for every value of a column of GROUPS, the longest waits first."""
    parts = waits.rows.partition_by(by, as_dict=True)
    groups = [_group(name, rows, waits.spans) for (name,), rows in parts.items()]
    return sorted(groups, key=lambda group: (-group.wait_ms, group.name or ""))


def halves(waits: QueueWaits) -> tuple[WaitGroup, WaitGroup]:
    """Return the waits in the first and in the second half of the window."""
    middle = (waits.since_ms + waits.until_ms) // 2
    return _part(waits, waits.since_ms, middle), _part(waits, middle, waits.until_ms)


def _part(waits: QueueWaits, since_ms: int, until_ms: int) -> WaitGroup:
    """Return the waits within [since, until)."""
    begin, until = (pl.col(name).clip(since_ms, until_ms) for name in ("begin", "until"))
    rows = waits.rows.with_columns(begin, until).filter(pl.col("begin") < pl.col("until"))
    return _group(None, rows, clip(waits.spans, since_ms, until_ms, sums=()))


def _group(name: str | None, rows: pl.DataFrame, spans: pl.DataFrame) -> WaitGroup:
    wait = pl.col("until") - pl.col("begin")
    sums = rows.select(
        jobs=pl.len(),
        open_jobs=pl.col("is_open").sum(),
        median_ms=wait.median(),
        p90_ms=wait.quantile(0.9, "linear"),
        wait_ms=wait.sum(),
        gpu_ms=(wait * pl.col("gpus")).sum(),
    ).row(0, named=True)
    own = spans.join(rows.select("number", "gpus"), on="number")
    by_cause = own.group_by("cause").agg(time=SPAN_MS.sum(), gpu_time=(SPAN_MS * pl.col("gpus")).sum())
    times = {cause: (time, gpu_time) for cause, time, gpu_time in by_cause.iter_rows()}
    return WaitGroup(
        name,
        **sums,
        cause_ms={cause.name: times.get(cause.name, (0, 0))[0] for cause in CAUSES},
        cause_gpu_ms={cause.name: times.get(cause.name, (0, 0))[1] for cause in CAUSES},
    )


RUNNING = "running"

_WORDS: Mapping[str, tuple[str, ...]] = {
    "completed": ("COMPLETED", "SUCCEEDED", "FINISHED"),
    "failed": ("FAILED", "OUT_OF_MEMORY"),
    "timed out": ("TIMEOUT", "DEADLINE", "DEADLINEEXCEEDED"),
    "cancelled": ("CANCELLED", "REVOKED"),
    "preempted": ("PREEMPTED", "REQUEUED", "EVICTED"),
    "host failed": ("NODE_FAIL", "BOOT_FAIL", "NODELOST"),
}
"""The words of schedulers for each end: Slurm's job states, phases of pods, conditions of Kueue."""

_END_OF_WORD = {word: state for state, words in _WORDS.items() for word in words}

END_STATES = (*_WORDS, RUNNING, UNKNOWN)


@dataclass(frozen=True)
class Goodput:
    """GPU time and jobs of a window by END_STATES. A job without a reported end is unknown, never completed."""

    gpu_ms: Mapping[str, int]
    jobs: Mapping[str, int]

    @property
    def completed_share(self) -> float | None:
        """Return the share of completed jobs in the GPU time with a known end; None without any known end."""
        known = sum(spent for state, spent in self.gpu_ms.items() if state not in (RUNNING, UNKNOWN))
        return self.gpu_ms["completed"] / known if known else None


def goodput(jobs: pl.DataFrame, since_ms: int, until_ms: int) -> Goodput:
    """Return the GPU time of a window by how its jobs ended.

    `jobs` has `gpus`, `start`, `end` and `state`, one row per run; rows without a GPU count or a start are left out.
    """
    word = pl.col("state").str.to_uppercase().str.extract(r"^([A-Z_]+)")
    ended = word.replace_strict(_END_OF_WORD, default=UNKNOWN, return_dtype=pl.String).fill_null(UNKNOWN)
    runs = pl.col("end").is_null()  # a run that ended after the window counts by how it ended
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
