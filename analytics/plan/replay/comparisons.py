"""Changes compared with today: scenarios saved by name, other numbers of GPUs, and deferrable work moved off peak.

Rows of saved scenarios are only added (analytics.decide.actions): a name's newest row has its policy, or its removal.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import polars as pl

from analytics.decide.actions import actor_words, add_rows, file_number
from analytics.frames import local_time, read_frame
from analytics.intervals import SPAN_MS, by_hour, clip
from analytics.plan.purchase import InternalPrices
from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.policy import OffPeakHours, ReplayPolicy, gpus_of, named_groups, policy_over
from analytics.plan.replay.replay_base import ReplayBase, ReplayOutcome, of_pools, scenario_outcome
from analytics.plan.replay.replay_fleet import ReplayFleet
from analytics.plan.replay.replayed_waits import ReplayCheck, WaitFigures, wait_figures, with_waits
from fallow import schema
from fallow.actors import Actor, actor_of
from fallow.clock import HOUR_MS
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake

LONGEST_NAME = 60
LONGEST_POLICY = 4000
MOST = 50
"""Most characters of a name and of a policy, and most scenarios of a lake: a comparison replays all of them."""

_SAVE, _REMOVE = "save", "remove"


@dataclass(frozen=True)
class SavedScenario:
    """A policy as TOML text with its name, and who saved it when."""

    name: str
    policy: str
    actor: Actor
    time_ms: int

    @property
    def by(self) -> str:
        return actor_words(self.actor)


def save_scenario(lake: Lake, name: str, policy: str, actor: Actor, *, now_ms: int) -> SavedScenario:
    """Save a scenario, which replaces one of the same name. `policy` is TOML that `analytics.plan.replay.policy` reads.

    Raise UsageError for an empty or long name, a long policy, and one scenario more than MOST; and LakeError.
    """
    words = " ".join(name.split())
    if not words or len(words) > LONGEST_NAME:
        raise UsageError("the scenario needs a name", f"write a few words, {LONGEST_NAME} characters at most")
    if len(policy) > LONGEST_POLICY:
        raise UsageError("the scenario is too long", f"stay below {LONGEST_POLICY} characters")
    others = {each.name for each in load_scenarios(lake)} - {words}
    if len(others) >= MOST:
        raise UsageError(f"the lake already has {MOST} scenarios", "remove one first")
    saved = SavedScenario(words, policy, actor, now_ms)
    _add(lake, _SAVE, saved, now_ms)
    return saved


def remove_scenario(lake: Lake, name: str, actor: Actor, *, now_ms: int) -> SavedScenario:
    """Remove a scenario and return it; raise FallowError for an unknown name, and LakeError."""
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
    """Return the scenarios that are not removed, by name; raise LakeError. Unusable files are left out."""
    files = lake.files(schema.SCENARIO.name)
    frame = read_frame(files, schema.SCENARIO, None, lake.left_out.leave_out).sort("time", maintain_order=True)
    newest = {
        row["name"]: (row["kind"], SavedScenario(row["name"], row["policy"] or "", actor_of(row), row["time"]))
        for row in frame.iter_rows(named=True)
    }
    return tuple(scenario for _, (kind, scenario) in sorted(newest.items()) if kind == _SAVE)


def as_toml(content: Mapping[str, Any]) -> str:
    """Return the text of a policy file with these keys and values: names, numbers, lists of names, and tables."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in content.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)  # strings and numbers are written alike in both


@dataclass(frozen=True)
class ComparedScenario:
    """The outcome of a saved scenario; None with the reason in `why_not` where it cannot be replayed."""

    saved: SavedScenario
    outcome: ReplayOutcome | None
    why_not: str = ""


def saved_policy(today: ReplayPolicy, saved: SavedScenario, zone: str) -> ReplayPolicy:
    """Return today's policy with the changes of a saved scenario; raise UsageError where that is not a policy."""
    try:
        content = tomllib.loads(saved.policy)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the scenario {saved.name} is not TOML: {error}", "correct that line") from error
    return policy_over(today, content, zone, f"the scenario {saved.name}")


def compared_scenarios(base: ReplayBase, saved: Iterable[SavedScenario], zone: str) -> Iterator[ComparedScenario]:
    """Yield each scenario against the replay of today, or the reason if it cannot be replayed here."""
    for each in saved:
        try:
            outcome = scenario_outcome(base, saved_policy(base.policy, each, zone))
        except UsageError as error:
            yield ComparedScenario(each, None, error.message)
        else:
            yield ComparedScenario(each, outcome)


_KNEE_FROM = 3
"""A bend needs a point on either side."""


@dataclass(frozen=True)
class SweepPoint:
    gpus: int
    outcome: ReplayOutcome


@dataclass(frozen=True)
class Sweep:
    """A pool of today with different numbers of GPUs, the fewest first."""

    pool: str
    """The pool, or `pool/model`."""
    points: tuple[SweepPoint, ...]
    there: int
    """The pool's GPUs today."""
    check: ReplayCheck
    """How well the replay of today explains the jobs of this pool."""
    window_ms: int
    knee: int | None
    """From this number on more GPUs shorten waits by little; None without a bend, or where waits are not known."""
    enough: int | None
    """The fewest GPUs that are as good as today, see `is_as_today`; None where no number is."""


def pool_part(base: ReplayBase, policy: ReplayPolicy, name: str) -> ReplayBase:
    """Return the base of a pool's jobs (`name`: a pool or `pool/model`), with pools that the policy merges with it."""
    own = {group.pool for group in named_groups(base.fleet.groups, name)}
    merged = own.union(*(pools for pools in policy.merge if own & {*pools}))
    return base if policy.small_work is not None else of_pools(base, merged)


def sweep_point(part: ReplayBase, policy: ReplayPolicy, name: str, gpus: int) -> SweepPoint:
    """Return the outcome with this number of GPUs in a pool; `part` is that of `pool_part`."""
    others = {pool: more for pool, more in policy.more_gpus.items() if pool != name}
    resized = replace(policy, gpus={**policy.gpus, name: gpus}, more_gpus=others)
    return SweepPoint(gpus, scenario_outcome(part, resized))


def sweep_of(part: ReplayBase, name: str, points: Iterable[SweepPoint]) -> Sweep:
    ordered = tuple(sorted(points, key=lambda point: point.gpus))
    known = [(each.gpus, each.outcome.waits.then.p95_ms) for each in ordered if each.outcome.waits is not None]
    curve = [(gpus, wait) for gpus, wait in known if wait is not None]
    enough = next((each.gpus for each in ordered if is_as_today(each.outcome)), None)
    there, window_ms = gpus_of(part.fleet.groups, name), part.window[1] - part.window[0]
    return Sweep(name, ordered, there, part.check, window_ms, knee(curve), enough)


def sweep(base: ReplayBase, policy: ReplayPolicy, name: str, numbers: Iterable[int]) -> Sweep:
    """Return the outcomes of a policy with each number of GPUs in a pool, for the jobs of that and of merged pools."""
    part = pool_part(base, policy, name)
    return sweep_of(part, name, (sweep_point(part, policy, name, number) for number in numbers))


_CURVE_POINTS = 8
_CURVE_LEAST, _CURVE_MOST = 0.75, 1.5
"""The sizes of a curve, as shares of today's GPUs."""


def curve_sizes(fleet: ReplayFleet, name: str) -> tuple[int, ...]:
    """Return numbers of GPUs, about 25 % fewer to 50 % more, in whole hosts: today's first, then the outermost.

    There are at least one smaller size, unless the pool has a single host, and two larger ones.
    """
    groups = named_groups(fleet.groups, name)
    there = sum(group.gpus for group in groups)
    if not there:
        return ()
    step = max(group.gpus_per_host for group in groups)
    step *= max(1, round(there * (_CURVE_MOST - _CURVE_LEAST) / step / (_CURVE_POINTS - 1)))
    below, above = ceil(there * (1 - _CURVE_LEAST) / step), max(2, ceil(there * (_CURVE_MOST - 1) / step))
    sizes = (there + step * number for number in range(-below, above + 1))
    return tuple(sorted((size for size in sizes if size > 0), key=lambda size: (size != there, -abs(size - there))))


def knee(curve: Sequence[tuple[float, float]]) -> int | None:
    """Return the point of a falling curve furthest below the line between its ends; None without a bend.

    Both axes are scaled to 0 to 1. Satopaa et al., *Finding a "Kneedle" in a Haystack*, 2011, without its smoothing.
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
    """Return whether waits are known, no figure of them is worse than today's, and every job can run."""
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
    """The deferrable jobs of a window; pairs are of today and of the replay with these off-peak hours."""

    off_peak: OffPeakHours
    jobs: int
    postponed: int
    """The jobs that start later."""
    by_hour: tuple[tuple[float, float], ...]
    """Their GPU time in ms in each hour of the local day."""
    paid: tuple[float, float] | None
    """Mean price of their GPU-hours at the internal prices of deferrable work; None without a price or GPU time."""
    waits: tuple[WaitFigures, WaitFigures] | None
    """None where the replay explains no waits."""

    def peak_ms(self) -> tuple[float, float]:
        """Return their GPU time in the hours of the day that are not wholly off-peak, today and then."""
        peak = [each for hour, each in enumerate(self.by_hour) if not self._is_off(hour)]
        return sum(today for today, _ in peak), sum(then for _, then in peak)

    def _is_off(self, hour: int) -> bool:
        since, until = self.off_peak.since_min, self.off_peak.until_min
        minutes = range(60 * hour, 60 * hour + 60)
        return all((since <= at < until) if since < until else (at >= since or at < until) for at in minutes)


def shifted_work(base: ReplayBase, off_peak: OffPeakHours, prices: Sequence[InternalPrices]) -> ShiftedWork:
    """Return the deferrable jobs with these hours; `prices` are the schedules of the pools."""
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
    """Return the GPU time of the jobs in the window by `pool`, `model` and `hour_of_day`: `gpu_ms`."""
    own = replayed.holds.filter(pl.col("number").is_in(jobs["number"].implode()))
    rows = by_hour(clip(own, *window, sums=()))
    hour = local_time("time", zone).dt.hour()
    held = rows.group_by("pool", "model", hour_of_day=hour).agg(gpu_ms=(SPAN_MS * pl.col("gpus")).sum())
    return held.sort("pool", "model", "hour_of_day")  # sums of money have the same last digit every time


def _paid(held: pl.DataFrame, prices: Sequence[InternalPrices]) -> float | None:
    """Return the mean price of a GPU-hour."""
    by_place = {(each.pool, each.model): each for each in prices}
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
