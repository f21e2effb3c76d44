"""Idle GPUs at moments of the past, what was known of them then, and what became of them: of simulated fleets and of a trace."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from analytics.names import JOINER
from analytics.simulation import write_fleet
from analytics.states import IN_USE, WITHOUT_EVIDENCE
from analytics.window import load_whole, open_inputs
from analytics.workloads.persistence import ANYBODY, idle_spells
from analytics.workloads.process_lists import SERVER
from benchmarks.fleet_kinds import KINDS, FleetOfKind
from benchmarks.labelled_trace import import_trace, trace_folder
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GPUS, DAYS, SEED, UNTIL_MS = 24, 49, 7_300, 20_777 * DAY_MS


@dataclass(frozen=True)
class Plan:
    """When questions are asked, of which GPUs, and for how long: every `step_ms` in `since_ms` to `until_ms`."""

    since_ms: int
    until_ms: int
    step_ms: int
    landmarks_ms: int
    age_min_ms: int
    horizons_ms: tuple[int, ...]


SIMULATED = Plan(
    UNTIL_MS - 21 * DAY_MS, UNTIL_MS - 7 * DAY_MS, 29 * HOUR_MS, 13 * HOUR_MS, HOUR_MS, (HOUR_MS, 12 * HOUR_MS, 7 * DAY_MS)
)  # fmt: skip
"""Steps of 29 and 13 hours come to every hour of the day."""


def traced(stretches: pl.DataFrame) -> Plan:
    """From ten hours of history on, as long as four hours follow."""
    first_ms, last_ms = (int(each) for each in stretches.select(pl.col("time").min(), pl.col("end").max()).row(0))
    horizons_ms = tuple(hours * HOUR_MS for hours in (1, 2, 4))
    return Plan(first_ms + 10 * HOUR_MS, last_ms - horizons_ms[-1], HOUR_MS, 30 * MINUTE_MS, 5 * MINUTE_MS, horizons_ms)


@dataclass(frozen=True)
class Moment:
    """What was known then: idle spells, with the kind of work before each; `cases` has GPUs idle then and what became of them."""

    until_ms: int
    spells: pl.DataFrame
    cases: pl.DataFrame


def moments(stretches: pl.DataFrame, kinds: pl.DataFrame, plan: Plan) -> Iterator[Moment]:
    """`kinds` has gpu, time and kind of the work that ended on a GPU then.

    The columns of `cases` are gpu, user (that of processes on it, else ANYBODY), age_ms, and for each horizon in milliseconds
    whether it stayed unused; null where that was not observed.
    """
    for until_ms in range(plan.since_ms, plan.until_ms + 1, plan.step_ms):
        spells = idle_spells(stretches, until_ms).join(kinds, on=("gpu", "time"), how="left", maintain_order="left")
        spells = spells.with_columns(pl.col("kind").fill_null(""))
        then = stretches.filter((pl.col("time") < until_ms) & (pl.col("end") >= until_ms))
        held = then.filter(pl.col("state") == "held").select("gpu", user=pl.col("holder"))
        running = pl.col("is_last") & (pl.col("time") + pl.col("length_ms") == until_ms)
        cases = (
            spells.filter(running & (pl.col("length_ms") >= plan.age_min_ms))
            .select("gpu", age_ms="length_ms")
            .join(held, on="gpu", how="left", maintain_order="left")
            .with_columns(pl.col("user").fill_null(ANYBODY))
        )
        for horizon_ms in plan.horizons_ms:
            cases = cases.with_columns(_kept(cases, stretches, until_ms, horizon_ms).alias(str(horizon_ms)))
        yield Moment(until_ms, spells, cases)


def _kept(cases: pl.DataFrame, stretches: pl.DataFrame, until_ms: int, horizon_ms: int) -> pl.Series:
    last_ms = until_ms + horizon_ms
    after = stretches.filter((pl.col("end") > until_ms) & (pl.col("time") < last_ms)).join(cases, on="gpu")
    same = pl.col("holder").str.split(JOINER).list.set_intersection(pl.col("user").str.split(JOINER)).list.len() > 0
    asked = (pl.col("user") == ANYBODY) | pl.col("holder").is_null() | same
    found = after.group_by("gpu").agg(
        used=(pl.col("state").is_in(IN_USE) & asked).any(),
        seen=(~pl.col("state").is_in(WITHOUT_EVIDENCE)).all() & (pl.col("end").max() >= last_ms),
    )
    kept = pl.when("used").then(0.0).when("seen").then(1.0)
    return cases.join(found, on="gpu", how="left", maintain_order="left").select(kept=kept)["kept"]


def simulated(gpus: int = GPUS, kinds: Iterable[str] = tuple(KINDS)) -> Iterator[tuple[Iterator[Moment], Plan]]:
    """The moments of one fleet of each kind."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            seed = SEED + len(kind)
            write_fleet(
                made_lake(folder),
                FleetOfKind(gpus=gpus, days=DAYS, seed=seed, interval_ms=600_000, until_ms=UNTIL_MS, kind=kind),
            )
            stretches, kinds_of_work = _known(folder)
        print(kind, file=sys.stderr, flush=True)
        yield moments(stretches, kinds_of_work, SIMULATED), SIMULATED


def _known(lake: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The ledger's rows, and when which kind of work ended where: an inference server, else what its job is one of."""
    ledger = load_whole(open_inputs(argparse.Namespace(lake=lake, since=None, until=None, config=None)))
    columns = ("gpu", "time", "end", "state", "holder", "job")
    stretches = ledger.stretches.select(columns).sort("gpu", "time")
    is_server = pl.concat_str("command", "arguments", separator=" ", ignore_nulls=True).str.contains(SERVER)
    servers = ledger.rollups.processes().filter(is_server).select("gpu", holder="user", server=True).unique()
    work = stretches.filter(pl.col("state").is_in(IN_USE)).join(servers, on=("gpu", "holder"), how="left")
    of_job = pl.col("job").str.split(":").list.first().fill_null("")
    kind = pl.when("server").then(pl.lit("service")).otherwise(of_job)
    return stretches, work.select("gpu", time="end", kind=kind).unique(("gpu", "time"), maintain_order=True)


def trace() -> Iterator[tuple[Iterator[Moment], Plan]]:
    """The moments of genai26; nothing where it is not there."""
    folder = trace_folder()
    if folder is None:
        print("skipped: the trace genai26 is not in ../shared/traces (its licence keeps it out)", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as name:
        import_trace(folder, Path(name))
        stretches, kinds = _known(name)
    plan = traced(stretches)
    yield moments(stretches, kinds, plan), plan
