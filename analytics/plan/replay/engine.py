"""Jobs run again, event by event: when each would have begun, where, and until when."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import polars as pl

from analytics.allocations.spans import FOREVER_MS
from analytics.frames import local_time
from analytics.intervals import SPAN_MS
from analytics.plan.replay.policy import OffPeakHours, Priorities, ReplayPolicy, SmallWork, changed_fleet
from analytics.plan.replay.queue_order import ORDER_RULES, victims
from analytics.plan.replay.replay_fleet import ReplayFleet
from analytics.plan.replay.station import AskedJobs, Run, Seat, Station, stations_of, waiting_at


def given_jobs(jobs: pl.DataFrame, policy: ReplayPolicy) -> pl.DataFrame:
    """Return the jobs as they arrive under the policy, in their order.

    With `arrived`, `rank`, `is_small`, `cut_ms` and `worked_later` beside REPLAY_JOB_SCHEMA; `ran_ms`, `limit_ms`,
    `gpus`, `hosts` and `pool` are changed.
    """
    ranked = jobs.with_columns(
        arrived=arrived(policy.off_peak), rank=rank(policy.priorities), is_small=is_small(policy.small_work)
    )
    given = with_idle_timeout(ranked, policy.idle_timeout_ms)
    if policy.limit_to_need:
        given = given.with_columns(limit_ms="ran_ms")
    merged = {pool: pools[0] for pools in policy.merge for pool in pools}
    return in_blocks(given, policy.block).with_columns(pl.col("pool").replace(merged))


def arrived(hours: OffPeakHours | None) -> pl.Expr:
    """Return a job's arrival: its request, or its start if the request is unknown or the job ran before the window.

    Deferrable jobs arrive in the next off-peak hour.
    """
    ran_before = pl.col("before_window") | pl.col("asked").is_null()
    came = pl.when(ran_before).then("started").otherwise("asked")
    if hours is None:
        return came
    waits = (pl.col("is_deferrable") & ~pl.col("before_window")).fill_null(value=False)
    return pl.when(waits).then(next_off_peak(came, hours)).otherwise(came)


def next_off_peak(moment: pl.Expr, hours: OffPeakHours) -> pl.Expr:
    """Return the moment if it is within the hours, else their next start, on the local clock."""
    wall = local_time(moment, hours.zone).dt.replace_time_zone(None)
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
    """Return a job's urgency: 0 is the most urgent; unknown values come last."""
    if priorities is None:
        return pl.lit(0, pl.Int64)
    column = pl.col(priorities.by)
    if priorities.by == "priority":
        return column.rank("dense", descending=True).cast(pl.Int64).fill_null(column.n_unique() + 1)
    places = {value: place for place, value in enumerate(priorities.values)}
    return column.replace_strict(places, default=len(places), return_dtype=pl.Int64)


def is_small(work: SmallWork | None) -> pl.Expr:
    """Return whether a job is small work; False if its memory need is unknown."""
    if work is None:
        return pl.lit(value=False)
    is_kind = pl.col("kind").is_in(work.kinds).fill_null(value=False)
    return (is_kind | (pl.col("gpus") == 1)) & pl.col("mem_bytes").is_not_null()


def with_idle_timeout(jobs: pl.DataFrame, timeout_ms: int | None) -> pl.DataFrame:
    """Return the jobs, ended once all of their GPUs were idle for this time. Unknown idle intervals end no job."""
    if timeout_ms is None:
        return jobs.with_columns(cut_ms=pl.lit(0, pl.Int64), worked_later=pl.lit(value=False))
    numbered = jobs.with_row_index("row")
    idle_intervals = (
        numbered.select("row", "ran_ms", idle_interval="idle_intervals")
        .explode("idle_interval")
        .drop_nulls("idle_interval")
        .unnest("idle_interval")
    )
    over = (
        idle_intervals.filter(pl.col("end") - pl.col("begin") >= timeout_ms)
        .group_by("row")
        .agg(pl.col("begin").min() + timeout_ms, worked_later=(pl.col("end").min() < pl.col("ran_ms").first()))
    )
    found = numbered.join(over, on="row", how="left", maintain_order="left")
    ends = pl.min_horizontal("ran_ms", pl.coalesce("begin", "ran_ms"))
    return found.with_columns(
        ran_ms=ends, cut_ms=pl.col("ran_ms") - ends, worked_later=pl.col("worked_later").fill_null(value=False)
    ).drop("row", "begin")


def in_blocks(jobs: pl.DataFrame, block: int | None) -> pl.DataFrame:
    """Return the jobs with the GPUs that they used, rounded up to blocks; never more than before.

    Each has as few hosts as its former GPUs per host allow.
    """
    if block is None:
        return jobs
    used = pl.max_horizontal(pl.col("gpus_used"), 1)
    blocks = pl.min_horizontal("gpus", (used + block - 1) // block * block)
    given = pl.when(pl.col("gpus_used").is_null()).then("gpus").otherwise(blocks)
    per_host = (pl.col("gpus") + pl.col("hosts") - 1) // pl.col("hosts")
    return jobs.with_columns(gpus=given, hosts=(given + per_host - 1) // per_host)


class ReplayLoop:
    """Runs jobs at stations. `runs` are in order of their ends; `preempted` counts how often each job lost its GPUs.

    The first stations go first at each moment. `waits_at` has the stations at which each job waits, by its number; a
    job without any never runs.
    """

    def __init__(
        self, jobs: AskedJobs, stations: Sequence[Station], waits_at: Sequence[Sequence[Station]], policy: ReplayPolicy
    ) -> None:
        self.runs: list[Run] = []
        self.preempted = [0] * len(waits_at)
        self._jobs = jobs
        self._stations = stations
        self._waits_at = waits_at
        self._priorities = policy.priorities
        self._orders = [ORDER_RULES[policy.order](station) for station in stations]
        self._left_ms = list(jobs.run_ms)
        self._ending: list[tuple[int, int, Run]] = []
        self._serial = count()

    def run(self) -> None:
        """Run the jobs from the first arrival to the last end."""
        ending = self._ending
        coming = sorted((turn[1:] for turn in self._jobs.turns if self._waits_at[turn[2]]), reverse=True)
        while coming or ending:
            now = min(coming[-1][0] if coming else FOREVER_MS, ending[0][0] if ending else FOREVER_MS)
            changed = set[int]()
            while ending and ending[0][0] == now:
                self._end(heapq.heappop(ending)[2], now, changed)
            while coming and coming[-1][0] == now:
                self._wait(coming.pop()[1], changed)
            self._begin_all(changed, now)

    def _wait(self, number: int, changed: set[int]) -> None:
        for station in self._waits_at[number]:
            station.wait(self._jobs.turns[number])
            changed.add(station.index)

    def _begin_all(self, changed: set[int], now: int) -> None:
        """Start the jobs that can begin at the changed stations, and at those of the jobs that they preempt."""
        while changed:
            station = self._stations[min(changed)]
            changed.remove(station.index)
            for number, seat in self._orders[station.index].beginners(now):
                self._begin(number, seat, station, now, changed)
            if self._priorities is not None and self._priorities.preempt and station.queue:
                self._make_room(station.queue[0][2], station, self._priorities, now, changed)

    def _make_room(self, number: int, station: Station, priorities: Priorities, now: int, changed: set[int]) -> None:
        """Preempt less urgent jobs for one that has no room anywhere."""
        if all(each.seat(number) is None for each in self._waits_at[number]):
            for run in victims(station, number, now):
                self._preempt(run, priorities, now)
                self._wait(run.number, changed)

    def _begin(self, number: int, seat: Seat, station: Station, now: int, changed: set[int]) -> None:
        for each in self._waits_at[number]:
            each.leave(self._jobs.turns[number])
            if each is not station:
                changed.add(each.index)  # who stood behind it there may be the first now
        run = Run(number, station, seat, now, station.planned_end(number, now))
        station.begin(run)
        end = now + round(self._left_ms[number] * station.factor(number))
        heapq.heappush(self._ending, (end, next(self._serial), run))

    def _end(self, run: Run, now: int, changed: set[int]) -> None:
        if run.end is None:  # else it gave way
            run.end = now
            run.station.end(run)
            self.runs.append(run)
            changed.add(run.station.index)

    def _preempt(self, run: Run, priorities: Priorities, now: int) -> None:
        """Take a job's GPUs and return it to the queue: it will continue where it stopped, or start again."""
        run.end = now
        run.station.end(run)
        self.runs.append(run)
        self.preempted[run.number] += 1
        done = round((now - run.since) / run.station.factor(run.number)) if priorities.resume else 0
        whole = self._left_ms[run.number] if priorities.resume else self._jobs.run_ms[run.number]
        self._left_ms[run.number] = whole - done + priorities.cost_ms


RUN_SCHEMA: dict[str, pl.DataType] = {
    "number": pl.UInt32(),
    **dict.fromkeys(("begin", "end", "arrived", "held_ms", "cut_ms"), pl.Int64()),
    **dict.fromkeys(("pool", "model", "why_not"), pl.String()),
    **dict.fromkeys(("gpus", "preempted"), pl.Int32()),
    "worked_later": pl.Boolean(),
}
"""One row per job.

begin, end    of its first run and of the job; null where it never fits
pool, model   where it ran last; null where it never fits
gpus          that the policy allocates to it
arrived       when it came into the queue under the policy: `asked`, else its start, or the next off-peak hour
preempted     how often it lost its GPUs
held_ms       how long it held GPUs in all, with lost work and the cost of restarts
cut_ms        by how much an idle time-out shortened it
worked_later  whether it worked again after the idle interval that ended it
why_not       why it never fits, one of those in `analytics.plan.replay.station`
"""

HOLD_SCHEMA: dict[str, pl.DataType] = {
    "number": pl.UInt32(),
    "time": pl.Int64(),
    "end": pl.Int64(),
    "pool": pl.String(),
    "model": pl.String(),
    "host": pl.Int32(),
    "gpus": pl.Float64(),
}
"""One row per job, host and time without a break: how many GPUs of a host it held; a part of a GPU is a part.

Hosts are numbered within their pool, their model and the partitions that they are open to, in the order of the fleet.
"""


@dataclass(frozen=True)
class Replayed:
    """The result of each job (RUN_SCHEMA, in the order of the jobs), its GPUs (HOLD_SCHEMA), and the fleet."""

    runs: pl.DataFrame
    holds: pl.DataFrame
    fleet: ReplayFleet


def replay(jobs: pl.DataFrame, fleet: ReplayFleet, policy: ReplayPolicy) -> Replayed:
    """Return the replay of the jobs on the fleet, both as the policy changes them; always the same result.

    `jobs` has REPLAY_JOB_SCHEMA. Raises UsageError where the policy names a pool that the fleet does not have.
    """
    changed, given = changed_fleet(fleet, policy), given_jobs(jobs, policy)
    asked = AskedJobs.of(given, is_sharing=policy.share > 1 or policy.mig)
    stations = stations_of(changed, asked, policy)
    places = [waiting_at(number, stations, policy) for number in range(given.height)]
    loop = ReplayLoop(asked, stations, [where for where, _ in places], policy)
    loop.run()
    holds = _holds(loop.runs)
    outcomes = given.with_row_index("row").with_columns(
        preempted=pl.Series(loop.preempted, dtype=pl.Int32),
        why_not=pl.Series([why for _, why in places], dtype=pl.String),
    )
    named = holds.join(outcomes.select("row", "number"), on="row", maintain_order="left")
    return Replayed(_runs(outcomes, holds), _as(named, HOLD_SCHEMA), changed)


def _holds(runs: Iterable[Run]) -> pl.DataFrame:
    """Return HOLD_SCHEMA with the `row` of the job instead of its number, and a `piece` per run."""
    rows = []
    for piece, run in enumerate(runs):
        at = run.station
        span = (piece, run.number, run.since, run.end, at.pool, at.model)
        rows += [(*span, at.first_host + host, gpus) for host, gpus in run.seat.holds()]
    schema = {"piece": pl.Int64(), "row": pl.UInt32(), **HOLD_SCHEMA}
    del schema["number"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _runs(jobs: pl.DataFrame, holds: pl.DataFrame) -> pl.DataFrame:
    """Return one row per job with RUN_SCHEMA; `jobs` has `row`, `preempted` and `why_not`."""
    pieces = holds.unique("piece", keep="first", maintain_order=True)
    ran = pieces.group_by("row").agg(
        pl.col("time").min().alias("begin"), pl.col("end").max(), pl.col("pool", "model").last(), held_ms=SPAN_MS.sum()
    )
    found = jobs.drop("pool", "model").join(ran, on="row", how="left", maintain_order="left")
    return _as(found.with_columns(pl.col("held_ms").fill_null(0)), RUN_SCHEMA)


def _as(rows: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(kind) for name, kind in schema.items())
