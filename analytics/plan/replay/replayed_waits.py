"""How long jobs waited, as they were seen to and as they were replayed, cut to the same window."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

JUDGED = ~pl.col("before_window") & pl.col("asked").is_not_null()
"""Of jobs with REPLAY_JOB_SCHEMA: whether there is a wait to tell; jobs that ran when the window began, and those of which nobody knows when they asked, have none."""


@dataclass(frozen=True)
class WaitFigures:
    """Waits of some jobs; `open_jobs` had not begun by the end of the window. Quantiles are None where there are no jobs.

    Those lie between the two nearest jobs. `gpu_ms` is what was waited times the GPUs of each.
    """

    jobs: int
    open_jobs: int
    p50_ms: float | None
    p95_ms: float | None
    most_ms: float | None
    gpu_ms: float


def with_waits(jobs: pl.DataFrame, begin: pl.Expr, until_ms: int) -> pl.DataFrame:
    """The judged jobs with `wait_ms`, up to the end of the window at most, and `is_open`.

    Args:
        jobs: with REPLAY_JOB_SCHEMA, and what `begin` needs.
        begin: when each began; null is never.
        until_ms: the end of the window.
    """
    stop = pl.min_horizontal(begin, pl.lit(until_ms))
    return jobs.filter(JUDGED).with_columns(
        wait_ms=(stop - pl.col("asked")).clip(lower_bound=0), is_open=begin.is_null() | (begin >= until_ms)
    )


def wait_figures(jobs: pl.DataFrame) -> WaitFigures:
    """The waits of jobs with `wait_ms`, `is_open` and `gpus`."""
    wait = pl.col("wait_ms")
    row = jobs.select(
        pl.len(),
        pl.col("is_open").sum(),
        wait.quantile(0.5, "linear").alias("p50"),
        wait.quantile(0.95, "linear").alias("p95"),
        wait.max().alias("most"),
        (wait * pl.col("gpus")).sum().alias("gpu_ms"),
    ).row(0)
    return WaitFigures(*row)
