"""What changes would have made of a window: scenarios saved by name, other numbers of GPUs, and work that can wait moved off peak.

Saved scenarios are only ever added (analytics.decide.actions): the newest of a name says what it is, or that it was removed.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from analytics.decide.actions import actor_words, add_rows, file_number
from analytics.frames import local_time, read_frame
from analytics.intervals import SPAN_MS, by_hour, clip
from analytics.plan.purchase import InternalPrices
from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.policy import OffPeakHours, ReplayPolicy, policy_over
from analytics.plan.replay.replay_base import ReplayBase, ReplayOutcome, of_pools, scenario_outcome
from analytics.plan.replay.replayed_waits import WaitFigures, wait_figures, with_waits
from fallow import schema
from fallow.actors import Actor, actor_of
from fallow.clock import HOUR_MS
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake

LONGEST_NAME = 60
LONGEST_POLICY = 4000
MOST = 50
"""Characters of a name and of a policy, and how many scenarios a lake keeps: each is a replay in every comparison."""

_SAVE, _REMOVE = "save", "remove"


@dataclass(frozen=True)
class SavedScenario:
    """A policy as TOML text, by its name, and who saved it when."""

    name: str
    policy: str
    actor: Actor
    time_ms: int

    @property
    def by(self) -> str:
        """Who saved it."""
        return actor_words(self.actor)


def save_scenario(lake: Lake, name: str, policy: str, actor: Actor, *, now_ms: int) -> SavedScenario:
    """Saves one, in the place of one with the same name; raises UsageError for a name that is none, and LakeError.

    `policy` is TOML that `analytics.plan.replay.policy` has understood.
    """
    words = " ".join(name.split())
    if not words or len(words) > LONGEST_NAME:
        raise UsageError("the scenario needs a name", f"a few words, {LONGEST_NAME} characters at most")
    if len(policy) > LONGEST_POLICY:
        raise UsageError("the scenario is too long to be kept", f"stay below {LONGEST_POLICY} characters")
    others = {each.name for each in load_scenarios(lake)} - {words}
    if len(others) >= MOST:
        raise UsageError("there are as many scenarios as can be kept", "remove one first")
    saved = SavedScenario(words, policy, actor, now_ms)
    _add(lake, _SAVE, saved, now_ms)
    return saved


def remove_scenario(lake: Lake, name: str, actor: Actor, *, now_ms: int) -> SavedScenario:
    """Takes one out of sight and returns it; raises FallowError where there is none of that name, and LakeError."""
    found = next((each for each in load_scenarios(lake) if each.name == name), None)
    if found is None:
        raise FallowError(f"there is no scenario '{name}'", "`fallow plan scenarios` lists them")
    _add(lake, _REMOVE, SavedScenario(name, "", actor, now_ms), now_ms)
    return found


def _add(lake: Lake, kind: str, scenario: SavedScenario, now_ms: int) -> None:
    row: dict[str, object] = {
        "time": now_ms,
        "name": scenario.name,
        "kind": kind,
        "policy": scenario.policy or None,
        **scenario.actor.columns(),
    }
    add_rows(lake, schema.SCENARIO, [row], now_ms, file_number(now_ms))


def load_scenarios(lake: Lake) -> tuple[SavedScenario, ...]:
    """Those that nobody has removed, by name; raises LakeError. A file that cannot be used is left out."""
    files = lake.files(schema.SCENARIO.name)
    frame = read_frame(files, schema.SCENARIO, None, lake.left_out.leave_out).sort("time", maintain_order=True)
    newest = {
        row["name"]: (row["kind"], SavedScenario(row["name"], row["policy"] or "", actor_of(row), row["time"]))
        for row in frame.iter_rows(named=True)
    }
    return tuple(scenario for _, (kind, scenario) in sorted(newest.items()) if kind == _SAVE)


def as_toml(content: Mapping[str, Any]) -> str:
    """Keys and values of a policy file as such a file; names, numbers, lists of names, and tables of numbers by name."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in content.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)  # strings and numbers are written alike in both


@dataclass(frozen=True)
class ComparedScenario:
    """What a saved scenario would have made of the jobs; without an `outcome` `why_not` says what stands in its way."""

    saved: SavedScenario
    outcome: ReplayOutcome | None
    why_not: str = ""


def saved_policy(today: ReplayPolicy, saved: SavedScenario, zone: str) -> ReplayPolicy:
    """Today's policy with what a saved scenario changes; raises UsageError where it says what no policy says."""
    try:
        content = tomllib.loads(saved.policy)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the scenario {saved.name} is not TOML: {error}", "correct that line") from error
    return policy_over(today, content, zone, f"the scenario {saved.name}")


def compared_scenarios(base: ReplayBase, saved: Iterable[SavedScenario], zone: str) -> Iterator[ComparedScenario]:
    """Each scenario against the replay of today; one that names a pool that is gone says so, and the others are answered."""
    for each in saved:
        try:
            outcome = scenario_outcome(base, saved_policy(base.policy, each, zone))
        except UsageError as error:
            yield ComparedScenario(each, None, error.message)
        else:
            yield ComparedScenario(each, outcome)


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


_DAY_HOURS = 24


@dataclass(frozen=True)
class ShiftedWork:
    """The deferrable jobs of a window, as they would run today and with these off-peak hours.

    `by_hour` has their GPU milliseconds in each hour of the local day, today and then. `paid` is what a GPU-hour of theirs would cost at the internal prices of deferrable work, today
    and then, in the site's currency; None where not every pool that they ran in has a price, or they had no GPU. `waits` are theirs, None where the replay says nothing of waits.
    """

    off_peak: OffPeakHours
    jobs: int
    postponed: int
    by_hour: tuple[tuple[float, float], ...]
    paid: tuple[float, float] | None
    waits: tuple[WaitFigures, WaitFigures] | None

    def peak_ms(self) -> tuple[float, float]:
        """Their GPU time in the hours of the day that do not lie whole in the off-peak ones, today and then."""
        peak = [each for hour, each in enumerate(self.by_hour) if not self._is_off(hour)]
        return sum(today for today, _ in peak), sum(then for _, then in peak)

    def _is_off(self, hour: int) -> bool:
        since, until = self.off_peak.since_min, self.off_peak.until_min
        minutes = range(60 * hour, 60 * hour + 60)
        return all((since <= at < until) if since < until else (at >= since or at < until) for at in minutes)


def shifted_work(base: ReplayBase, off_peak: OffPeakHours, prices: Sequence[InternalPrices]) -> ShiftedWork:
    """What the hours would have made of the deferrable jobs; `prices` are the schedules of the pools."""
    then = replay(base.coming, base.fleet, replace(base.policy, off_peak=off_peak))
    jobs = base.rebuilt.jobs.filter(pl.col("is_deferrable"))
    moved = then.runs.join(base.today.runs.select("number", was="arrived"), on="number")
    moved = moved.filter(pl.col("number").is_in(jobs["number"].implode()), pl.col("arrived") > pl.col("was"))
    held = [_held(each, jobs, base.window, off_peak.zone) for each in (base.today, then)]
    hours = [dict(each.group_by("hour_of_day").agg(pl.col("gpu_ms").sum()).iter_rows()) for each in held]
    paid = [_paid(each, prices) for each in held]
    return ShiftedWork(
        off_peak=off_peak,
        jobs=jobs.height,
        postponed=moved.height,
        by_hour=tuple((hours[0].get(hour, 0.0), hours[1].get(hour, 0.0)) for hour in range(_DAY_HOURS)),
        paid=None if paid[0] is None or paid[1] is None else (paid[0], paid[1]),
        waits=(_waits(base, jobs, base.today), _waits(base, jobs, then)) if base.check.has_waits else None,
    )


def _held(replayed: Replayed, jobs: pl.DataFrame, window: tuple[int, int], zone: str) -> pl.DataFrame:
    """GPU time of the jobs in the window by `pool`, `model` and `hour_of_day`: `gpu_ms`."""
    own = replayed.holds.filter(pl.col("number").is_in(jobs["number"].implode()))
    rows = by_hour(clip(own, *window, sums=()))
    hour = local_time("time", zone).dt.hour()
    return rows.group_by("pool", "model", hour_of_day=hour).agg(gpu_ms=(SPAN_MS * pl.col("gpus")).sum())


def _paid(held: pl.DataFrame, prices: Sequence[InternalPrices]) -> float | None:
    by_place = {(each.pool, each.model): each for each in prices}
    """The mean price of a GPU-hour."""
    paid, hours = 0.0, 0.0
    for pool, model, hour, gpu_ms in held.iter_rows():
        own = by_place.get((pool, model))
        factor = None if own is None else own.factors["deferrable"][hour]
        if own is None or own.flat is None or factor is None:
            return None
        paid += gpu_ms / HOUR_MS * factor * own.flat
        hours += gpu_ms / HOUR_MS
    return paid / hours if hours else None


def _waits(base: ReplayBase, jobs: pl.DataFrame, replayed: Replayed) -> WaitFigures:
    found = jobs.join(replayed.runs.select("number", "begin"), on="number", how="left")
    return wait_figures(with_waits(found, pl.col("begin"), base.window[1]))
