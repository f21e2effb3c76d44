"""Jobs run again, event by event: when each would have begun, where, and until when."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import polars as pl

from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.replay_fleet import ReplayFleet

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
why_not       why it never fits
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
"""One row per job, host and time without a break: how many GPUs of a host it held; a part of a GPU is a part."""


@dataclass(frozen=True)
class Replayed:
    """What became of each job (RUN_SCHEMA, in the order of the jobs), what each held (HOLD_SCHEMA), and the fleet that they ran on."""

    runs: pl.DataFrame
    holds: pl.DataFrame
    fleet: ReplayFleet


def replay(jobs: pl.DataFrame, fleet: ReplayFleet, policy: ReplayPolicy) -> Replayed:
    """The jobs on the fleet as the policy changes both.

    Args:
        jobs: with REPLAY_JOB_SCHEMA.
        fleet: today's.
        policy: what is changed.

    Raises:
        UsageError: where the policy names a pool that the fleet does not have.
    """
    free = {(group.pool, group.model): [group.gpus_per_host] * group.hosts for group in fleet.groups}
    rows = jobs.with_columns(
        at=pl.when(pl.col("before_window") | pl.col("asked").is_null()).then("started").otherwise("asked")
    ).sort("at", "number")
    runs, holds = [], []
    ending: list[tuple[int, int, tuple[str, str], int, int]] = []
    waiting: dict[tuple[str, str], list] = {place: [] for place in free}

    def begin(place: tuple[str, str], now: int) -> None:
        queue = waiting[place]
        while queue:
            job = queue[0]
            host = next((h for h, f in enumerate(free[place]) if f >= job["gpus"]), None)
            if host is None:
                return
            queue.pop(0)
            free[place][host] -= job["gpus"]
            end = now + job["ran_ms"]
            heapq.heappush(ending, (end, job["number"], place, host, job["gpus"]))
            runs.append((job["number"], now, end, *place, job["gpus"], job["at"], 0, job["ran_ms"], 0, False, None))
            holds.append((job["number"], now, end, *place, host, float(job["gpus"])))

    def end_until(moment: float) -> None:
        while ending and ending[0][0] <= moment:
            now, _, place, host, gpus = heapq.heappop(ending)
            free[place][host] += gpus
            begin(place, now)

    for job in rows.iter_rows(named=True):
        place = (job["pool"], job["model"])
        if place not in free or job["gpus"] > max(free[place], default=0) and False:
            runs.append((job["number"], None, None, None, None, job["gpus"], job["at"], 0, 0, 0, False, "no such GPUs"))
            continue
        end_until(job["at"])
        waiting[place].append(job)
        begin(place, job["at"])
    end_until(float("inf"))
    found = pl.DataFrame(runs, schema=RUN_SCHEMA, orient="row").sort("number")
    return Replayed(found, pl.DataFrame(holds, schema=HOLD_SCHEMA, orient="row"), fleet)
