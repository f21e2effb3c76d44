"""Jobs run again, event by event: when each would have begun, where, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from analytics.plan.replay.asked_jobs import AskedJobs
from analytics.plan.replay.changed_fleet import changed_fleet
from analytics.plan.replay.given_jobs import given_jobs
from analytics.plan.replay.loop import ReplayLoop
from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.replay_fleet import ReplayFleet
from analytics.plan.replay.station import Run
from analytics.plan.replay.stations import stations_of, waiting_at

RUN_SCHEMA: dict[str, pl.DataType] = {
    "number": pl.UInt32(),
    "begin": pl.Int64(),
    "end": pl.Int64(),
    "pool": pl.String(),
    "model": pl.String(),
    "gpus": pl.Int32(),
    "arrived": pl.Int64(),
    "preempted": pl.Int32(),
    "held_ms": pl.Int64(),
    "cut_ms": pl.Int64(),
    "worked_later": pl.Boolean(),
    "why_not": pl.String(),
}
"""One row per job.

begin, end    when it first began and when it was done; null where it never fits
pool, model   where it ran last; null where it never fits
gpus          that the policy gives it
arrived       when it came into the queue under the policy: `asked`, its start where that is unknown, or the next off-peak hour
preempted     how often it lost its GPUs
held_ms       how long it held GPUs in all, what was lost and what a restart costs included
cut_ms        by how much an idle time-out shortened it
worked_later  whether it worked again after the idle spell that ended it
why_not       why it never fits, one of WHY_NOT
"""

HOLD_SCHEMA: dict[str, pl.DataType] = {
    "number": pl.UInt32(),
    "begin": pl.Int64(),
    "end": pl.Int64(),
    "pool": pl.String(),
    "model": pl.String(),
    "host": pl.Int32(),
    "gpus": pl.Float64(),
}
"""One row per job, host and time without a break: how many GPUs of a host it held; a part of a GPU is a part.

Hosts are numbered within their pool, their model and the partitions that they are open to, in the order of the fleet.
"""


@dataclass(frozen=True)
class Replayed:
    """What became of each job (RUN_SCHEMA, in the order of the jobs), what each held (HOLD_SCHEMA), and the fleet on which they ran."""

    runs: pl.DataFrame
    holds: pl.DataFrame
    fleet: ReplayFleet


def replay(jobs: pl.DataFrame, fleet: ReplayFleet, policy: ReplayPolicy) -> Replayed:
    """The jobs on the fleet as the policy changes both; the same answer each time.

    Args:
        jobs: with REPLAY_JOB_SCHEMA.
        fleet: today's.
        policy: what is changed.

    Raises:
        UsageError: where the policy names a pool that the fleet does not have.
    """
    changed, given = changed_fleet(fleet, policy), given_jobs(jobs, policy)
    asked = AskedJobs.of(given, is_sharing=policy.share > 1 or policy.mig)
    stations = stations_of(changed, asked, policy)
    places = [waiting_at(number, stations, policy) for number in range(given.height)]
    loop = ReplayLoop(asked, stations, [where for where, _ in places], policy)
    loop.run()
    holds = _holds(loop.runs)
    told = given.with_row_index("row").with_columns(
        preempted=pl.Series(loop.preempted, dtype=pl.Int32),
        why_not=pl.Series([why for _, why in places], dtype=pl.String),
    )
    named = holds.join(told.select("row", "number"), on="row", maintain_order="left")
    return Replayed(_runs(told, holds), _as(named, HOLD_SCHEMA), changed)


def _holds(runs: Iterable[Run]) -> pl.DataFrame:
    """HOLD_SCHEMA with the `row` of the job instead of its number, and the `piece`: each run has one."""
    rows = [
        (
            piece,
            run.number,
            run.since,
            run.end,
            run.station.pool,
            run.station.model,
            run.station.cards.first_host + host,
            gpus,
        )
        for piece, run in enumerate(runs)
        for host, gpus in run.seat.holds()
    ]
    schema = {"piece": pl.Int64(), "row": pl.UInt32(), **HOLD_SCHEMA}
    del schema["number"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _runs(jobs: pl.DataFrame, holds: pl.DataFrame) -> pl.DataFrame:
    """One row per job with RUN_SCHEMA; `jobs` has `row`, `preempted` and `why_not`."""
    pieces = holds.unique("piece", keep="first", maintain_order=True)
    lasting = (pl.col("end") - pl.col("begin")).sum()
    ran = pieces.group_by("row").agg(
        pl.col("begin").min(), pl.col("end").max(), pl.col("pool", "model").last(), held_ms=lasting
    )
    found = jobs.drop("pool", "model").join(ran, on="row", how="left", maintain_order="left")
    return _as(found.with_columns(pl.col("held_ms").fill_null(0)), RUN_SCHEMA)


def _as(rows: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(kind) for name, kind in schema.items())
