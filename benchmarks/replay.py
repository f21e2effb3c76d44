"""The speed of replaying jobs, and the error against queues with a known answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analytics.plan.replay.engine import replay
from analytics.plan.replay.policy import Priorities, ReplayPolicy
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.plan.replay.replay_jobs import REPLAY_JOB_SCHEMA
from benchmarks.measure import Figure, timed
from fallow.clock import DAY_MS
from tests.plan.queueing import RandomClass, erlang_c, hours_by_rank, observed, replay_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = 200_000
POOLS = 10
HOSTS = 125
SPAN_MS = 28 * DAY_MS
BUSY = 0.95
SIZES = (1,) * 60 + (2,) * 15 + (4,) * 12 + (8,) * 10 + (16,) * 3
ERLANG = ((1, 0.8), (16, 0.9), (64, 0.95))
SEED = 18


def measure() -> Iterator[Figure]:
    """Yield the CPU seconds for a busy fleet, and errors against formulas."""
    jobs, fleet = busy_jobs(), busy_fleet()
    policies = {
        "fifo": ReplayPolicy(),
        "backfill": ReplayPolicy(order="backfill"),
        "preempt": ReplayPolicy(priorities=Priorities("kind", ("serving", "training"), preempt=True)),
        "share": ReplayPolicy(order="backfill", share=3),
    }
    for name, policy in policies.items():
        cpu, _ = timed(partial(replay, jobs, fleet, policy), 1)
        how = f"CPU: {JOBS:,} jobs on {fleet.gpus:,} GPUs that are {BUSY:.0%} busy, {POOLS} pools"
        yield Figure(f"replay_{name}", cpu, "s", how)
    yield from _known_queues()


def busy_jobs() -> pl.DataFrame:
    """Return jobs of four weeks on 1 to 16 GPUs, a tenth of them serving, with limits of 1, 2 or 4 run times."""
    rng = np.random.default_rng(SEED)
    gpus = rng.choice(SIZES, JOBS)
    mean_ms = BUSY * HOSTS * 8 * SPAN_MS / (JOBS * float(np.mean(SIZES)))
    ran_ms = rng.exponential(mean_ms, JOBS).astype(np.int64) + 1
    rows = pl.DataFrame({
        "number": np.arange(JOBS), "pool": [f"p{pool}" for pool in rng.integers(0, POOLS, JOBS)],
        "kind": rng.choice(["serving", "training", "batch"], JOBS, p=[0.1, 0.5, 0.4]), "gpus": gpus,
        "hosts": np.maximum(1, gpus // 8), "asked": np.sort(rng.integers(0, SPAN_MS, JOBS)), "ran_ms": ran_ms,
        "limit_ms": ran_ms * rng.choice([1, 2, 4], JOBS), "mem_bytes": rng.integers(2, 70, JOBS) * 10**9,
        "sm_pct": rng.uniform(5, 100, JOBS),
    })  # fmt: skip
    usual = replay_jobs([{}]).drop(rows.columns)
    return rows.join(usual, how="cross").select(pl.col(name).cast(kind) for name, kind in REPLAY_JOB_SCHEMA.items())


def busy_fleet() -> ReplayFleet:
    hosts = [HOSTS // POOLS + (pool < HOSTS % POOLS) for pool in range(POOLS)]
    return ReplayFleet(tuple(HostGroup(f"p{pool}", "m", own, 8, 80 * 10**9) for pool, own in enumerate(hosts)))


def _known_queues() -> Iterator[Figure]:
    for gpus, busy in ERLANG:
        load = gpus * busy
        found = observed([RandomClass("usual", load)], gpus, ReplayPolicy(), 1_000_000, SEED)
        off = found.waited["usual"] / (erlang_c(gpus, load) / (gpus - load)) - 1
        yield Figure(
            f"replay_erlang_{gpus}_gpus",
            100 * off,
            "%",
            f"mean wait of a million jobs, M/M/{gpus} {busy:.0%} busy, against Erlang C",
        )
    classes = [RandomClass("urgent", 1.0), RandomClass("usual", 2.0)]
    found = observed(classes, 4, ReplayPolicy(priorities=Priorities("kind", ("urgent", "usual"))), 400_000, SEED)
    for kind, hours in hours_by_rank(classes, 4).items():
        yield Figure(
            f"replay_cobham_{kind}",
            100 * (found.waited[kind] / hours - 1),
            "%",
            "mean wait, M/M/4 of two classes, Cobham",
        )
