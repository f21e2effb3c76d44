"""What jobs waited for beside GPUs: the scheduler's own cycle, limits of a team, holds. Learnt from what a replay leaves unexplained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import polars as pl

from analytics.plan.replay.replayed_waits import JUDGED, with_waits

WHOSE = ("team", "pool")
"""Columns of the jobs by which delays are told apart."""

Delays: TypeAlias = Mapping[tuple[str | None, str], Sequence[int]]

_GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole parts, fill the numbers from 0 to 1 evenly from the first few on."""

JOBS_MIN = 10
"""Fewer jobs of a team in a pool say nothing of the others."""


def learnt_delays(jobs: pl.DataFrame, runs: pl.DataFrame, until_ms: int) -> Delays:
    """By WHOSE what jobs waited longer than they were replayed to, in order, in ms; never less than nothing.

    Args:
        jobs: those to learn from, with REPLAY_JOB_SCHEMA.
        runs: with `analytics.plan.replay.engine.RUN_SCHEMA`.
        until_ms: the end of the window.
    """
    replayed = jobs.join(runs.select("number", "begin"), on="number")
    then = with_waits(replayed, pl.col("begin"), until_ms).select("number", then="wait_ms")
    both = with_waits(jobs, pl.col("started"), until_ms).join(then, on="number")
    longer = both.group_by(WHOSE).agg(delay=(pl.col("wait_ms") - pl.col("then")).clip(lower_bound=0).sort())
    return {(team, pool): own for team, pool, own in longer.iter_rows() if len(own) >= JOBS_MIN}


def with_delays(jobs: pl.DataFrame, delays: Delays) -> pl.DataFrame:
    """The jobs, each coming later by one of the delays of its team and pool; these take turns in a fixed order that has long and short ones alike."""
    parts = []
    for (team, pool), own in (
        jobs.sort("asked", "number").partition_by(WHOSE, maintain_order=True, as_dict=True).items()
    ):
        known = delays.get((team, pool), ())
        turns = [known[int(turn * _GOLDEN % 1 * len(known))] if known else 0 for turn in range(own.height)]
        later = pl.col("asked") + pl.Series(turns, dtype=pl.Int64)
        parts.append(own.with_columns(asked=pl.when(JUDGED).then(later).otherwise("asked")))
    return pl.concat(parts).sort("number") if delays else jobs
