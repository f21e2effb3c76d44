"""What jobs' GPU time led to, by how they ended: goodput beside utilization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

RUNNING, UNKNOWN = "running", "unknown"

_WORDS: Mapping[str, str] = {
    "COMPLETED": "completed",
    "SUCCEEDED": "completed",
    "FINISHED": "completed",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "TIMEOUT": "timed out",
    "DEADLINE": "timed out",
    "DEADLINEEXCEEDED": "timed out",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "EVICTED": "preempted",
    "NODE_FAIL": "host failed",
    "BOOT_FAIL": "host failed",
    "NODELOST": "host failed",
}
"""How a scheduler's word for a job's end is counted: Slurm's job states, and the phases of pods and conditions of Kueue."""

END_STATES = (*dict.fromkeys(_WORDS.values()), RUNNING, UNKNOWN)


@dataclass(frozen=True)
class Goodput:
    """GPU time of a window by END_STATES, and how many jobs each has; what nobody said is unknown, never completed."""

    gpu_ms: Mapping[str, int]
    jobs: Mapping[str, int]

    @property
    def completed_share(self) -> float | None:
        """The part of the time whose end is known that led to completed jobs; None where no end is known."""
        known = sum(spent for state, spent in self.gpu_ms.items() if state not in (RUNNING, UNKNOWN))
        return self.gpu_ms["completed"] / known if known else None


def goodput(jobs: pl.DataFrame, since_ms: int, until_ms: int) -> Goodput:
    """How the GPU time of a window ended.

    Args:
        jobs: with `gpus`, `start`, `end` and `state`, one row per run; those without a number of GPUs and those that never began are left out.
        since_ms: start of the window.
        until_ms: its end.
    """
    word = pl.col("state").str.to_uppercase().str.extract(r"^([A-Z_]+)")
    ended = word.replace_strict(_WORDS, default=UNKNOWN, return_dtype=pl.String).fill_null(UNKNOWN)
    runs = pl.col("end").is_null() | (pl.col("end") > until_ms)
    stop = pl.min_horizontal(pl.col("end").fill_null(until_ms), pl.lit(until_ms))
    spent = (
        jobs.filter(pl.col("start").is_not_null())
        .select(
            ended=pl.when(runs).then(pl.lit(RUNNING)).otherwise(ended),
            gpu_ms=(stop - pl.max_horizontal("start", pl.lit(since_ms))) * pl.col("gpus"),
        )
        .filter(pl.col("gpu_ms") > 0)
    )
    sums = {
        state: (time, count)
        for state, time, count in spent.group_by("ended").agg(pl.col("gpu_ms").sum(), pl.len()).iter_rows()
    }
    return Goodput(
        {state: sums.get(state, (0, 0))[0] for state in END_STATES},
        {state: sums.get(state, (0, 0))[1] for state in END_STATES},
    )
