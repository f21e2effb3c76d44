"""Idle GPUs at past moments, the facts known then, and their later use, in simulated fleets and in a trace."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from analytics.inventory import load_inventory
from analytics.ledger.gpu_states import STATES_OF_GPUS
from analytics.names import JOINER
from analytics.simulation import write_fleet
from analytics.states import IN_USE, WITHOUT_EVIDENCE
from analytics.window import load_whole, open_inputs
from analytics.workloads.idle_intervals import ANYBODY
from analytics.workloads.persistence import known_intervals
from benchmarks.fleet_kinds import KINDS, FleetOfKind
from benchmarks.labelled_trace import import_trace, trace_folder
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from fallow.lake import Lake
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GPUS, DAYS, SEED, UNTIL_MS = 24, 49, 7_300, 20_777 * DAY_MS


@dataclass(frozen=True)
class Plan:
    """The moments of the questions (every `step_ms` from `since_ms` to `until_ms`), their GPUs and their horizons."""

    since_ms: int
    until_ms: int
    step_ms: int
    landmarks_ms: int
    age_min_ms: int
    horizons_ms: tuple[int, ...]


SIMULATED = Plan(
    since_ms=UNTIL_MS - 21 * DAY_MS,
    until_ms=UNTIL_MS - 7 * DAY_MS,
    step_ms=85 * HOUR_MS,
    landmarks_ms=13 * HOUR_MS,
    age_min_ms=HOUR_MS,
    horizons_ms=(HOUR_MS, DAY_MS, 7 * DAY_MS),
)
"""Steps of 85 and 13 hours reach every hour of the day."""


def traced(segments: pl.DataFrame) -> Plan:
    """Return the plan for a trace: from ten hours of history on, while four hours follow."""
    first_ms, last_ms = (int(each) for each in segments.select(pl.col("time").min(), pl.col("end").max()).row(0))
    horizons_ms = tuple(hours * HOUR_MS for hours in (1, 2, 4))
    return Plan(first_ms + 10 * HOUR_MS, last_ms - horizons_ms[-1], HOUR_MS, 30 * MINUTE_MS, 5 * MINUTE_MS, horizons_ms)


@dataclass(frozen=True)
class Moment:
    """The facts at a moment: idle intervals (with `pool`); `cases` has the GPUs idle then, and their later use."""

    until_ms: int
    intervals: pl.DataFrame
    cases: pl.DataFrame


def moments(segments: pl.DataFrame, plan: Plan) -> Iterator[Moment]:
    """Yield the moments of a plan. `segments` has gpu, host, time, end, state, user and pool.

    The columns of `cases` are gpu, user (of its processes, else ANYBODY), age_ms, and for each horizon in milliseconds
    whether the GPU stayed unused; null where that was not observed.
    """
    pools = dict(segments.select("gpu", "pool").unique("gpu").iter_rows())
    for until_ms in range(plan.since_ms, plan.until_ms + 1, plan.step_ms):
        intervals = known_intervals(segments, pools.__getitem__, until_ms).cast({pl.Categorical: pl.String})
        running = pl.col("is_last") & (pl.col("end") == until_ms)
        cases = intervals.filter(running & (until_ms - pl.col("began") >= plan.age_min_ms)).select(
            "gpu",
            user=pl.when(pl.col("kind") == "held").then("user").otherwise(pl.lit(ANYBODY)),
            age_ms=until_ms - pl.col("began"),
        )
        for horizon_ms in plan.horizons_ms:
            cases = cases.with_columns(_kept(cases, segments, until_ms, horizon_ms).alias(str(horizon_ms)))
        yield Moment(until_ms, intervals, cases)


def _kept(cases: pl.DataFrame, segments: pl.DataFrame, until_ms: int, horizon_ms: int) -> pl.Series:
    last_ms = until_ms + horizon_ms
    after = segments.filter((pl.col("end") > until_ms) & (pl.col("time") < last_ms)).join(
        cases.select("gpu", was_of="user"), on="gpu"
    )
    same = pl.col("user").str.split(JOINER).list.set_intersection(pl.col("was_of").str.split(JOINER)).list.len() > 0
    asked = (pl.col("was_of") == ANYBODY) | pl.col("user").is_null() | same
    found = after.group_by("gpu").agg(
        used=(pl.col("state").is_in(IN_USE) & asked).any(),
        seen=(~pl.col("state").is_in(WITHOUT_EVIDENCE)).all() & (pl.col("end").max() >= last_ms),
    )
    kept = pl.when("used").then(0.0).when("seen").then(1.0)
    return cases.join(found, on="gpu", how="left", maintain_order="left").select(kept=kept)["kept"]


def simulated(gpus: int = GPUS, kinds: Iterable[str] = tuple(KINDS)) -> Iterator[tuple[Iterator[Moment], Plan]]:
    """Yield the moments of one fleet of each kind."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            seed = SEED + len(kind)
            write_fleet(
                made_lake(folder),
                FleetOfKind(gpus=gpus, days=DAYS, seed=seed, interval_ms=600_000, until_ms=UNTIL_MS, kind=kind),
            )
            segments = _known(folder)
        print(kind, file=sys.stderr, flush=True)
        yield moments(segments, SIMULATED), SIMULATED


def _known(lake: str) -> pl.DataFrame:
    """Return the ledger's rows, with the pool of the GPU."""
    ledger = load_whole(open_inputs(argparse.Namespace(lake=lake, since=None, until=None, config=None)))
    inventory = ledger.inventory or load_inventory(Lake.at(lake))
    pools = {gpu: inventory.pool(gpu) for gpu in ledger.segments["gpu"].unique()}
    pool = pl.col("gpu").replace_strict(pools, return_dtype=pl.String)
    return ledger.segments.select(*STATES_OF_GPUS, pool=pool).sort("gpu", "time")


def trace() -> Iterator[tuple[Iterator[Moment], Plan]]:
    """Yield the moments of genai26; none where the trace is missing."""
    folder = trace_folder()
    if folder is None:
        print("skipped: the trace genai26 is not in ../shared/traces (its licence keeps it out)", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as name:
        import_trace(folder, Path(name))
        segments = _known(name)
    plan = traced(segments)
    yield moments(segments, plan), plan
