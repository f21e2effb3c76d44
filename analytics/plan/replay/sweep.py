"""The same jobs on a pool of more and fewer GPUs: waits against cost, and where more of them begin to bring little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analytics.plan.replay.outcome import ReplayOutcome
from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.replay_base import ReplayBase, of_pools, scenario_outcome

_KNEE_FROM = 3
"""A bend has a point on each side."""


@dataclass(frozen=True)
class SweepPoint:
    """The outcome with so many GPUs in the pool."""

    gpus: int
    outcome: ReplayOutcome


@dataclass(frozen=True)
class Sweep:
    """A pool of today with different numbers of GPUs, the fewest first; `there` is how many it has.

    `knee` is the number from which on more GPUs shorten waits by little, None where there is no bend, or waits are not told. `enough`
    is the fewest that are as good as today, see `is_as_today`; None where none is.
    """

    pool: str
    points: tuple[SweepPoint, ...]
    there: int
    window_ms: int
    knee: int | None
    enough: int | None


def sweep(base: ReplayBase, policy: ReplayPolicy, pool: str, numbers: Sequence[int]) -> Sweep:
    """The outcomes of a policy with each number of GPUs in a pool, for the jobs of that pool and of those that are merged with it."""
    merged = {pool, *(each for pools in policy.merge if pool in pools for each in pools)}
    own = base if policy.small_work is not None else of_pools(base, merged)
    points = tuple(
        SweepPoint(number, scenario_outcome(own, replace(policy, gpus={**policy.gpus, pool: number})))
        for number in sorted(numbers)
    )
    told = [(each.gpus, each.outcome.waits.then.p95_ms) for each in points if each.outcome.waits is not None]
    curve = [(gpus, wait) for gpus, wait in told if wait is not None]
    there = sum(group.gpus for group in base.fleet.groups if group.pool == pool)
    enough = next((each.gpus for each in points if is_as_today(each.outcome)), None)
    return Sweep(pool, points, there, base.window[1] - base.window[0], knee(curve), enough)


def knee(curve: Sequence[tuple[float, float]]) -> int | None:
    """The point of a falling curve that lies furthest below the line from its first to its last point, both axes taken from 0 to 1; None without a bend.

    Satopaa et al., *Finding a "Kneedle" in a Haystack*, 2011, without its smoothing.
    """
    if len(curve) < _KNEE_FROM:
        return None
    (first, most), (last, least) = curve[0], curve[-1]
    if most <= least:
        return None
    below = [(1 - (gpus - first) / (last - first)) - (wait - least) / (most - least) for gpus, wait in curve]
    deepest = max(below)
    return int(curve[below.index(deepest)][0]) if deepest > 1e-9 else None


def is_as_today(outcome: ReplayOutcome) -> bool:
    """Whether waits are told and none of their figures is worse than today's, and every job can run."""
    waits = outcome.waits
    if waits is None or outcome.unplaced:
        return False
    pairs = (
        (waits.then.p50_ms, waits.today.p50_ms),
        (waits.then.p95_ms, waits.today.p95_ms),
        (waits.then.gpu_ms, waits.today.gpu_ms),
    )
    return waits.then.open_jobs <= waits.today.open_jobs and all(
        then is not None and today is not None and then <= today for then, today in pairs
    )
