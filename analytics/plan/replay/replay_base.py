"""What every replay of a window starts from: its jobs, today's fleet, how its queue is taken to work, and how well that explains what was seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product

import polars as pl

from analytics.plan.jobs import PoolModel, TeamOf, blocks, located
from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.outcome import ReplayOutcome, replay_outcome
from analytics.plan.replay.policy import Order, Priorities, ReplayPolicy
from analytics.plan.replay.replay_fleet import GpuFacts, ReplayFleet, fleet_today
from analytics.plan.replay.replay_jobs import RebuiltJobs, in_places, partition_key, rebuilt_jobs
from analytics.plan.replay.replayed_waits import (
    Delays,
    ReplayCheck,
    check_replay,
    checked_waits,
    learnt_delays,
    mean_error_ms,
    mean_waiting,
    with_delays,
)
from fallow.errors import UsageError

_LEARNT_FROM = 10_000
"""More jobs of the first half would not tell more of how the queue works."""

_ORDERS: tuple[Order, ...] = ("backfill", "fifo")
"""Orders of a queue, first the one that is taken where several explain as much: Slurm backfills by default."""

_WAITING_MOST = 100
"""So many jobs wait in the mean where the `conservative` order is tried too: it plans each of them at each step."""


@dataclass(frozen=True)
class ReplayBase:
    """A window that can be replayed.

    Attributes:
        rebuilt: its jobs; waits count from when these asked.
        coming: the same as they come to the queue, later by what holds them beside GPUs.
        fleet: today's.
        policy: how the queue is taken to work today.
        delays: what else held jobs, see `analytics.plan.replay.replayed_waits`; empty where the GPUs alone explain the waits.
        today: the replay of today.
        check: that against what was observed.
        window: its start and end, in ms.
    """

    rebuilt: RebuiltJobs
    coming: pl.DataFrame
    fleet: ReplayFleet
    policy: ReplayPolicy
    delays: Delays
    today: Replayed
    check: ReplayCheck
    window: tuple[int, int]

    @property
    def homeless(self) -> int:
        """How many jobs fit nowhere on today's fleet, as they asked."""
        return self.today.runs["why_not"].count()


def replay_base(
    jobs: pl.DataFrame,
    placed: pl.DataFrame,
    needs: pl.DataFrame,
    *,
    facts: GpuFacts,
    team_of: TeamOf,
    window: tuple[int, int],
    error_max: float,
    places: frozenset[PoolModel],
) -> ReplayBase:
    """The base of a window, made of what `rebuilt_jobs` and `fleet_today` take; beyond `error_max` the replay says nothing.

    The order of the queue is the one that explains the waits of the jobs that asked in its first half best, and so are the delays, which are looked
    for only where none explains them to `error_max`. The check is of those that asked in its second half.
    """
    whole = placed.filter(~pl.col("instance"))
    rebuilt = rebuilt_jobs(jobs, placed, needs, window=window, team_of=team_of, places=places)
    known, claimed = located(jobs, whole)
    own_blocks = {(partition_key(*key[:2]), key[2]): hosts for key, hosts in blocks(known, claimed).items()}
    own = whole.filter(in_places(places))
    fleet = fleet_today(own, own_blocks, facts, window[1])
    middle = sum(window) // 2
    first = rebuilt.jobs["asked"].drop_nulls().sort().head(_LEARNT_FROM)
    until = middle if first.len() < _LEARNT_FROM else min(middle, int(first[-1]))
    early = rebuilt.jobs.filter(pl.coalesce("asked", "started") < until)
    policy, runs = _nearest(early, fleet, until)
    error = checked_waits(early, runs, until).error
    delays = learnt_delays(early, runs, until) if error is not None and error > error_max else {}
    coming = with_delays(rebuilt.jobs, delays)
    today = replay(coming, fleet, policy)
    check = check_replay(rebuilt.jobs, own, today, window, judged_from_ms=middle, error_max=error_max)
    return ReplayBase(rebuilt, coming, fleet, policy, delays, today, check, window)


def _nearest(jobs: pl.DataFrame, fleet: ReplayFleet, until_ms: int) -> tuple[ReplayPolicy, pl.DataFrame]:
    """The order of the queue that is nearest to the waits of jobs up to a moment, job by job, and its runs; the first where nothing can be told."""
    ranked = (None, Priorities("priority")) if jobs["priority"].n_unique() > 1 else (None,)
    policies = [ReplayPolicy(order=order, priorities=priorities) for order, priorities in product(_ORDERS, ranked)]
    tried = [(policy, replay(jobs, fleet, policy).runs) for policy in policies]
    since_ms = int(jobs["asked"].min() or 0)  # type: ignore[arg-type]  # of integers
    if mean_waiting(jobs, tried[0][1], since_ms, until_ms) <= _WAITING_MOST:
        more = [ReplayPolicy(order="conservative", priorities=priorities) for priorities in ranked]
        tried += [(policy, replay(jobs, fleet, policy).runs) for policy in more]
    return min(tried, key=lambda each: mean_error_ms(jobs, each[1], until_ms))


def scenario_outcome(base: ReplayBase, policy: ReplayPolicy) -> ReplayOutcome:
    """What a policy would have made of the jobs, against the replay of today; make it of `base.policy`, so that only what it changes differs.

    Raises UsageError where it names pools, or values to rank jobs by, that are not there.
    """
    _check_ranks(base.rebuilt.jobs, policy.priorities)
    then = replay(base.coming, base.fleet, policy)
    return replay_outcome(base.rebuilt.jobs, base.today, then, base.window, has_waits=base.check.has_waits)


def _check_ranks(jobs: pl.DataFrame, priorities: Priorities | None) -> None:
    """What is named to go first has to be there, or nothing would be otherwise and nobody would know why."""
    if priorities is None or not priorities.values:
        return
    known = set(jobs[priorities.by].drop_nulls())
    if unknown := [value for value in priorities.values if value not in known]:
        there = ", ".join(sorted(known)) or "none"
        raise UsageError(f"no job of this window has the {priorities.by} {unknown[0]}", f"there are {there}")


def of_pools(base: ReplayBase, pools: Collection[str]) -> ReplayBase:
    """The jobs and GPUs of some pools, and how well their waits are explained."""
    jobs, coming = (each.filter(pl.col("pool").is_in(list(pools))) for each in (base.rebuilt.jobs, base.coming))
    fleet = ReplayFleet(tuple(group for group in base.fleet.groups if group.pool in pools))
    runs, holds = (
        each.join(jobs.select("number"), on="number", how="semi") for each in (base.today.runs, base.today.holds)
    )
    late = jobs.filter(pl.col("asked") >= base.check.since_ms)
    return replace(
        base,
        rebuilt=replace(base.rebuilt, jobs=jobs),
        coming=coming,
        fleet=fleet,
        today=Replayed(runs, holds, fleet),
        check=replace(base.check, waits=checked_waits(late, runs, base.window[1])),
    )
