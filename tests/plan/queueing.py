"""Queues that have a known answer: random jobs, and what queueing theory says of how long they wait."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analytics.plan.replay.engine import replay
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.plan.replay.replay_jobs import REPLAY_JOB_SCHEMA
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from analytics.plan.replay.policy import ReplayPolicy

_USUAL = {"job": "j", "user": "ann", "pool": "p", "model": "m", "gpus": 1, "hosts": 1, "asked": 0, "ran_ms": HOUR_MS}
_USUAL |= {"is_deferrable": False, "before_window": False}


def replay_jobs(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Jobs with REPLAY_JOB_SCHEMA, numbered from 0: by default on one GPU of pool `p`, at 0, for an hour."""
    named = [{"number": number} | _USUAL | row for number, row in enumerate(rows)]
    return pl.DataFrame(named, schema=REPLAY_JOB_SCHEMA)


def one_pool(gpus: int, hosts: int = 1) -> ReplayFleet:
    return ReplayFleet((HostGroup("p", "m", hosts, gpus),))


@dataclass(frozen=True)
class RandomClass:
    """Jobs of a kind that come at random, so many an hour (Poisson), and run for hours of a gamma distribution.

    `variation` is the squared coefficient of variation of the hours: 1 is exponential, 1/2 is Erlang's of two phases, 0
    is constant.
    """

    kind: str
    per_hour: float
    hours: float = 1.0
    variation: float = 1.0

    @property
    def load(self) -> float:
        return self.per_hour * self.hours

    @property
    def rest_hours(self) -> float:
        """Mean remaining hours of a running job, at a random moment, one server: half the rate times E[hours^2]."""
        return self.per_hour * self.hours**2 * (1 + self.variation) / 2

    def arrivals(self, rng: np.random.Generator, jobs: int) -> pl.DataFrame:
        asked = np.cumsum(rng.exponential(HOUR_MS / self.per_hour, jobs))
        even = np.full(jobs, self.hours)
        hours = rng.gamma(1 / self.variation, self.hours * self.variation, jobs) if self.variation else even
        return pl.DataFrame({"kind": self.kind, "asked": asked.round(), "ran_ms": (hours * HOUR_MS).round()})


def random_jobs(classes: Sequence[RandomClass], jobs: int, seed: int) -> pl.DataFrame:
    """About so many jobs in all, of all classes until the first of them ends."""
    rng = np.random.default_rng(seed)
    rate = sum(each.per_hour for each in classes)
    parts = [each.arrivals(rng, round(jobs * each.per_hour / rate)) for each in classes]
    until = min(part["asked"].max() for part in parts)
    rows = pl.concat(parts).filter(pl.col("asked") <= until).sort("asked").with_row_index("number")
    usual = replay_jobs([{}]).drop("number", "kind", "asked", "ran_ms")
    return rows.join(usual, how="cross").select(pl.col(name).cast(kind) for name, kind in REPLAY_JOB_SCHEMA.items())


@dataclass(frozen=True)
class Observed:
    """Of a replay: the busy share of GPU time, and by kind the mean hours until the first start and until the end."""

    utilization: float
    waited: Mapping[str, float]
    stayed: Mapping[str, float]


def observed(classes: Sequence[RandomClass], gpus: int, policy: ReplayPolicy, jobs: int, seed: int) -> Observed:
    """Random jobs on one host, the first tenth of them left out, in which the queue fills."""
    asked = random_jobs(classes, jobs, seed)
    runs = replay(asked, one_pool(gpus), policy).runs.with_columns(asked["kind"])
    later = runs.slice(runs.height // 10)
    means = later.group_by("kind").agg(
        waited=(pl.col("begin") - pl.col("arrived")).mean() / HOUR_MS,
        stayed=(pl.col("end") - pl.col("arrived")).mean() / HOUR_MS,
    )
    busy_ms, span_ms = later["held_ms"].sum(), runs["arrived"].max() - later["arrived"].min()
    waited, stayed = (dict(means.select("kind", name).iter_rows()) for name in ("waited", "stayed"))
    return Observed(busy_ms / (gpus * span_ms), waited, stayed)


def erlang_c(servers: int, load: float) -> float:
    """The share of jobs that wait in M/M/c (Erlang 1917), by the recursion of Erlang's B."""
    blocked = 1.0
    for server in range(1, servers + 1):
        blocked = load * blocked / (server + load * blocked)
    busy = load / servers
    return blocked / (1 - busy * (1 - blocked))


def crommelin_hours(servers: int, load: float) -> float:
    """Mean hours that jobs of an hour each wait in M/D/c (Crommelin, P.O. Electrical Engineers' Journal 25, 1932)."""
    total, rounds = 0.0, 0
    while True:
        rounds += 1
        mean, least = rounds * load, rounds * servers
        term = _poisson_from(least, mean) - servers / load * _poisson_from(least + 1, mean)
        total += term
        if term < 1e-9:
            return total


def _poisson_from(least: int, mean: float) -> float:
    """The chance of at least so many."""
    numbers = np.arange(1, least + 400)
    logs = numbers * math.log(mean) - mean - np.cumsum(np.log(numbers))
    return float(np.exp(logs[least - 1 :]).sum())


def hours_by_rank(classes: Sequence[RandomClass], servers: int) -> dict[str, float]:
    """Mean hours that jobs wait, most urgent class first, none pre-empted: one server or exponential hours of one mean.

    Cobham, *Priority Assignment in Waiting Line Problems*, Operations Research 2 (1954), for one and several channels.
    """
    load = sum(each.load for each in classes)
    several = erlang_c(servers, load) * classes[0].hours / servers
    rest = sum(each.rest_hours for each in classes) if servers == 1 else several
    found, before = {}, 0.0
    for each in classes:
        upto = before + each.load / servers
        found[each.kind] = rest / ((1 - before) * (1 - upto))
        before = upto
    return found


def stay_by_rank(classes: Sequence[RandomClass]) -> dict[str, float]:
    """Mean hours from a job's arrival to its end on one server, where more urgent jobs interrupt it and it resumes.

    Conway, Maxwell and Miller, *Theory of Scheduling* (1967), section 8-7 (preemptive resume).
    """
    found, before, rest = {}, 0.0, 0.0
    for each in classes:
        upto, rest = before + each.load, rest + each.rest_hours
        found[each.kind] = each.hours / (1 - before) + rest / ((1 - before) * (1 - upto))
        before = upto
    return found
