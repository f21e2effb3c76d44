"""Kinds of simulated fleets for benchmarks: other pools, and workloads with their own rhythm.

Runs return at their hour; projects end and leave processes behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from analytics.simulation import SimulatedFleet
from analytics.simulation.catalog import A100, H100, L40S, MEASURED, POOLS, TAUGHT, V100, Habits, Pool
from analytics.simulation.stays import WORK, Site, Stay, new_seed, person, working_hour
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS

_EVERY = (("day", 0.5), ("weekday", 0.3), ("week", 0.2))
"""How often a run returns, and the share of the slots in which it does; our own guess, without a trace."""


@dataclass(frozen=True)
class Visit:
    """A user's time on a slot: active from `start_ms` to `idle_from_ms`, with a process until `end_ms`."""

    start_ms: int
    idle_from_ms: int
    end_ms: int
    person: int


def returning_runs(rng: np.random.Generator, since_ms: int, until_ms: int) -> Iterator[Visit]:
    """Yield runs of one to three hours at the same hour; in two of three slots the process stays until the next run."""
    rhythm = str(rng.choice([name for name, _ in _EVERY], p=[share for _, share in _EVERY]))
    hour_ms, weekday, person = int(rng.integers(0, 24)) * HOUR_MS, int(rng.integers(0, 7)), int(rng.integers(0, 2**31))
    stays = rng.random() < 2 / 3
    days = [
        day_ms for day_ms in range(since_ms // DAY_MS * DAY_MS, until_ms, DAY_MS) if _is_due(rhythm, day_ms, weekday)
    ]
    for day_ms, next_ms in zip(days, [*days[1:], until_ms], strict=True):
        start_ms = day_ms + hour_ms + int(rng.normal(0, 5)) * MINUTE_MS
        idle_ms = start_ms + int(rng.uniform(1, 3) * HOUR_MS)
        end_ms = next_ms + hour_ms - 40 * MINUTE_MS if stays else idle_ms
        yield Visit(start_ms, idle_ms, max(idle_ms, end_ms), person)


def _is_due(rhythm: str, day_ms: int, weekday: int) -> bool:
    there = (day_ms // DAY_MS + 3) % 7  # the epoch was a Thursday
    return rhythm == "day" or (there < 5 if rhythm == "weekday" else there == weekday)


def projects(rng: np.random.Generator, since_ms: int, until_ms: int) -> Iterator[Visit]:
    """Yield projects: weeks of daily work by one person. Two in five leave a process at their end, some for ever."""
    at_ms = since_ms + int(rng.exponential(3.0) * DAY_MS)
    while at_ms < until_ms:
        person, ends_ms = int(rng.integers(0, 2**31)), at_ms + int(rng.uniform(5, 40) * DAY_MS)
        while at_ms < ends_ms:
            start_ms = working_hour(at_ms, rng)
            idle_ms = start_ms + int(rng.uniform(2, 9) * HOUR_MS)
            next_ms = working_hour(idle_ms + int(rng.choice([14.0, 40.0], p=[0.8, 0.2]) * HOUR_MS), rng)
            yield Visit(start_ms, idle_ms, next_ms - 10 * MINUTE_MS if rng.random() < 0.6 else idle_ms, person)
            at_ms = next_ms
        if rng.random() < 0.4:
            left_ms = int(rng.choice([rng.uniform(4, 20), 365.0], p=[0.6, 0.4]) * DAY_MS)
            yield Visit(at_ms, at_ms + HOUR_MS, at_ms + left_ms, person)
            at_ms += left_ms
        at_ms += int(rng.exponential(8.0) * DAY_MS)


def _returning(
    site: Site, slot: tuple[int, ...], rng: np.random.Generator, since_ms: int, until_ms: int
) -> Iterator[Stay]:
    yield from _visits(site, slot, rng, returning_runs(rng, since_ms, until_ms))


def _projects(
    site: Site, slot: tuple[int, ...], rng: np.random.Generator, since_ms: int, until_ms: int
) -> Iterator[Stay]:
    yield from _visits(site, slot, rng, projects(rng, since_ms, until_ms))


def _visits(site: Site, slot: tuple[int, ...], rng: np.random.Generator, visits: Iterable[Visit]) -> Iterator[Stay]:
    for visit in visits:
        team, user = person(np.random.default_rng(visit.person))
        yield Stay(
            visit.start_ms,
            visit.end_ms,
            slot,
            site.habits.training,
            "returning",
            user,
            team,
            name=f"{team}-run",
            seed=new_seed(rng),
            idle_from_ms=visit.idle_from_ms if visit.end_ms > visit.idle_from_ms else None,
        )


WORK.update(returning=_returning, project=_projects)


@dataclass(frozen=True)
class FleetKind:
    """Pools, whose shares add up to 1, and the habits of their users."""

    pools: tuple[Pool, ...] = POOLS
    habits: Habits = MEASURED


KINDS: dict[str, FleetKind] = {
    "measured": FleetKind(),
    "tuned": FleetKind(habits=TAUGHT),
    "training": FleetKind((Pool("train", H100, 0.75, 8, "training"), Pool("legacy", V100, 0.25, 4, "notebook"))),
    "serving": FleetKind((Pool("serving", L40S, 0.75, 4, "serving"), Pool("train", H100, 0.25, 8, "training"))),
    "interactive": FleetKind((Pool("lab", V100, 0.75, 4, "notebook"), Pool("train-old", A100, 0.25, 8, "training"))),
    "returning": FleetKind((Pool("batch", A100, 0.75, 8, "returning"), Pool("train", H100, 0.25, 8, "training"))),
    "projects": FleetKind((Pool("research", H100, 0.75, 8, "project"), Pool("serving", L40S, 0.25, 4, "serving"))),
}
"""`measured` is the fleet of the sources in docs/simulation.md; the others differ as much as possible."""


@dataclass(frozen=True, kw_only=True)
class FleetOfKind(SimulatedFleet):
    """A simulated fleet of one of KINDS."""

    kind: str

    @property
    def pools(self) -> tuple[Pool, ...]:
        return KINDS[self.kind].pools

    @property
    def habits(self) -> Habits:
        return KINDS[self.kind].habits
