"""Stays: which user holds which GPUs of a host from when to when, drawn host by host from the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from analytics.simulation.catalog import (
    JOB_GAP,
    JOB_LENGTH,
    MEASURED,
    NIGHT_START_RATIO,
    NOTEBOOK,
    QUIET_EVERY,
    QUIET_IDLE_FACTOR,
    SERVICES,
    TEAMS,
    Behaviour,
    Habits,
    SimulatedHost,
    draw_ms,
)
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS

BURN_IN_MS = 7 * DAY_MS
"""Stays are drawn from a week before the first row, so that the fleet is at work on the first day."""


NOTEBOOK_ARGUMENTS = "python3 -m ipykernel_launcher -f kernel.json"


@dataclass(frozen=True)
class SimulatedServer:
    """Facts that an inference server reports: its model, its engine, and its KV cache's used share at full load."""

    model: str
    engine: str
    kv_cache_ratio: float | None = None


@dataclass(frozen=True)
class Stay:
    """Work on some GPUs of a host, [start_ms, end_ms) on the row grid."""

    start_ms: int
    end_ms: int
    gpus: tuple[int, ...]
    """Positions on the host."""
    behaviour: Behaviour
    work: str
    user: str
    account: str
    name: str
    seed: int
    """Seed of everything random inside the stay."""
    job_id: str = ""
    command: str = "python3"
    processes: int = 1
    unused: tuple[int, ...] = ()
    """Positions on which no kernel ever runs."""
    idle_from_ms: int | None = None
    """Time from which no kernel runs although the processes stay."""
    idle_factor: float = 1.0
    allocated: bool = False
    """True if a scheduler knows the stay."""
    pace: tuple[float, ...] = ()
    """Share of the stay's level by GPU; all of it if empty."""
    starved: bool = False
    """True if the host's disks are at their limit because of it."""
    orphaned: bool = False
    """True if the starting process exits when the stay falls idle."""
    arguments: str | None = None
    server: SimulatedServer | None = None


@dataclass(frozen=True)
class Site:
    host: SimulatedHost
    habits: Habits


def host_stays(
    host: SimulatedHost,
    free: tuple[int, ...],
    alone: tuple[int, ...],
    *,
    seed: int,
    since_ms: int,
    until_ms: int,
    grid_ms: int,
    habits: Habits = MEASURED,
) -> list[Stay]:
    """Return the stays of a host that touch [since_ms, until_ms), by start; they never overlap on a GPU.

    Multi-GPU work is spread over the GPUs in `free`; each GPU in `alone` only gets work of its own.
    """
    draw = WORK[host.pool.work]
    site = Site(host, habits)
    rng = np.random.default_rng([seed, host.number, 1])
    stays = []
    for slot in (*_slots(free, host.pool.work, rng), *((gpu,) for gpu in alone)):
        for stay in draw(site, slot, rng, since_ms - BURN_IN_MS, until_ms):
            start_ms, end_ms = _floor(stay.start_ms, grid_ms), _floor(stay.end_ms, grid_ms)
            if end_ms > max(since_ms, start_ms) and start_ms < until_ms:
                idle = None if stay.idle_from_ms is None else _floor(stay.idle_from_ms, grid_ms)
                stays.append(replace(stay, start_ms=start_ms, end_ms=end_ms, idle_from_ms=idle))
    return sorted(stays, key=lambda stay: (stay.start_ms, stay.gpus))


def _slots(free: tuple[int, ...], work: str, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    at = 0
    while at < len(free):
        sizes = [1] if work in ("serving", "notebook") else [size for size in (8, 4, 2, 1) if size <= len(free) - at]
        chance = np.array([{8: 0.45, 4: 0.3, 2: 0.15, 1: 0.1}[size] for size in sizes])
        size = sizes[int(rng.choice(len(sizes), p=chance / chance.sum()))]
        yield free[at : at + size]
        at += size


def _training(
    site: Site, slot: tuple[int, ...], rng: np.random.Generator, since_ms: int, until_ms: int
) -> Iterator[Stay]:
    at_ms = since_ms + int(rng.integers(0, DAY_MS // 2))
    while at_ms < until_ms:
        end_ms = at_ms + draw_ms(JOB_LENGTH, rng)
        team, user = person(rng)
        number = 1_000_000 + int(rng.integers(0, 9_000_000))
        part = len(slot) > 1 and rng.random() < site.habits.part_ratio
        tail = rng.random() < site.habits.tail_ratio
        yield Stay(
            at_ms,
            end_ms,
            slot,
            site.habits.training_of.get(team, site.habits.training),
            "training",
            user,
            team,
            name=f"{team}-{('pretrain', 'finetune', 'sweep', 'eval')[int(rng.integers(0, 4))]}",
            job_id=str(number),
            seed=new_seed(rng),
            allocated=True,
            unused=slot[len(slot) // 2 :] if part else (),
            idle_from_ms=at_ms + int((end_ms - at_ms) * rng.uniform(0.3, 0.8)) if tail else None,
        )
        at_ms = _next_start(end_ms + draw_ms(JOB_GAP, rng), rng)


def _serving(
    site: Site, slot: tuple[int, ...], rng: np.random.Generator, since_ms: int, until_ms: int
) -> Iterator[Stay]:
    quiet = (site.host.number * site.host.pool.gpus_per_host + slot[0]) % QUIET_EVERY == QUIET_EVERY - 3
    service, team = SERVICES[0 if quiet else 1 + int(rng.integers(0, len(SERVICES) - 1))]
    at_ms = since_ms
    while at_ms < until_ms:
        end_ms = at_ms + round(DAY_MS * rng.uniform(3, 12))  # until the next release
        pod = f"{service}-{int(rng.integers(16**9)):09x}-{int(rng.integers(16**5)):05x}"
        yield Stay(
            at_ms,
            end_ms,
            slot,
            site.habits.serving_of.get(service, site.habits.serving),
            "serving",
            f"svc-{team}",
            team,
            pod,
            new_seed(rng),
            command="tritonserver" if service == "ranker" else "python3",
            allocated=True,
            idle_factor=QUIET_IDLE_FACTOR if quiet else 1.0,
            server=SimulatedServer(service, "triton"),
        )
        at_ms = end_ms + int(rng.integers(1, 4)) * MINUTE_MS


def _notebooks(
    site: Site, slot: tuple[int, ...], rng: np.random.Generator, since_ms: int, until_ms: int
) -> Iterator[Stay]:
    at_ms = working_hour(since_ms + int(rng.integers(0, 3 * DAY_MS)), rng)
    while at_ms < until_ms:
        team, user = person(rng)
        worked_ms = int(rng.uniform(1, 8) * HOUR_MS)
        # most close it in the evening, some find it open the next day, a few forget it over days
        left_ms = int(rng.choice([0.0, rng.uniform(8, 20), rng.uniform(24, 80)], p=[0.6, 0.27, 0.13]) * HOUR_MS)
        yield Stay(
            at_ms,
            at_ms + worked_ms + left_ms,
            slot,
            NOTEBOOK,
            "notebook",
            user,
            team,
            name="jupyter",
            seed=new_seed(rng),
            processes=2 if rng.random() < 0.25 else 1,
            idle_from_ms=at_ms + worked_ms if left_ms else None,
            arguments=NOTEBOOK_ARGUMENTS if site.habits.records_arguments else None,
        )
        at_ms = working_hour(at_ms + worked_ms + left_ms + int(rng.exponential(60 * HOUR_MS)), rng)


DrawnStays = Callable[[Site, tuple[int, ...], np.random.Generator, int, int], Iterator[Stay]]
"""Draws the work of a slot of GPUs from one moment to another."""

WORK: dict[str, DrawnStays] = {"training": _training, "serving": _serving, "notebook": _notebooks}
"""The function that draws stays, by the work of a pool; benchmarks/fleet_kinds.py adds more."""


def _next_start(at_ms: int, rng: np.random.Generator) -> int:
    """Return when the next job starts in a slot that is free at `at_ms`: many jobs wait for a person to come in."""
    if _at_work(at_ms) or rng.random() < NIGHT_START_RATIO:
        return at_ms
    return working_hour(at_ms, rng)


def working_hour(at_ms: int, rng: np.random.Generator) -> int:
    """Return the time itself inside working hours, else some time in the next working morning."""
    if _at_work(at_ms):
        return at_ms
    day_ms = _floor(at_ms, DAY_MS) + (DAY_MS if at_ms % DAY_MS >= 20 * HOUR_MS else 0)
    while not _at_work(day_ms + 12 * HOUR_MS):
        day_ms += DAY_MS
    return day_ms + int(rng.uniform(8, 11) * HOUR_MS)


def _at_work(at_ms: int) -> bool:
    weekday = (at_ms // DAY_MS + 3) % 7  # the epoch was a Thursday
    return weekday < 5 and 8 * HOUR_MS <= at_ms % DAY_MS < 20 * HOUR_MS


def person(rng: np.random.Generator) -> tuple[str, str]:
    teams = tuple(TEAMS)
    team = teams[int(rng.choice(len(teams), p=[0.4, 0.25, 0.15, 0.1, 0.1]))]
    return team, TEAMS[team][int(rng.integers(0, len(TEAMS[team])))]


def new_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 2**62))


def _floor(at_ms: int, step_ms: int) -> int:
    return at_ms // step_ms * step_ms
