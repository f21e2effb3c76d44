"""Runs of pods and of Slurm's jobs on GPUs, from the labels of one window and from what ran at the end of the window before.

That a label is gone says that its holder left only where the GPU was looked at since: a stretch goes on over a gap in which nobody
looked, and ends where the GPU's next sample does not name it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.scraped.who.given import Given
from fallow.clock import DAY_MS, MINUTE_MS

NEAR_MS = MINUTE_MS
"""Who is away for so short a time did not leave, and GPUs that come so soon after one another came together: exporters are scraped at
different moments, and miss a holder now and then."""

_SILENT_MS = DAY_MS
"""What runs on a GPU that nobody sees for so long ended with its last sample, as an agent has it of a kubelet that is silent."""

RUN_KEY = ("scheduler", "claim_id", "host", "gpu")
RUN_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(RUN_KEY, pl.String()), "time": pl.Int64(), "until_ms": pl.Int64(), "told": pl.Boolean(),
}  # fmt: skip
"""Columns of the runs that a window leaves open: `until_ms` is up to when they were seen (null: not known), `told` whether
kube-state-metrics has told of them."""

_NO_JOB = ("", "0")
"""How exporters write that there is none."""


@dataclass(frozen=True)
class LabelRuns:
    """`rows` has RUN_KEY, `time`, `first_ms`, `until_ms`, `end`, `user`, `told` and `is_new`; `waiting` has RUN_SCHEMA.

    `first_ms` is when the window first names this GPU, an `end` of null runs on, and `is_new` is whether no window before saw the run.
    `waiting` are open runs on whose GPUs this window has not looked.
    """

    rows: pl.DataFrame
    waiting: pl.DataFrame


def label_runs(given: Given, before: pl.DataFrame, as_of_ms: int) -> LabelRuns:
    """The runs that the window saw or that ended in it; `before` has RUN_SCHEMA, and `as_of_ms` is the end of the window."""
    seen = _gone_on(_runs(_pieces(_holders(given.stretches))), given.looked, before)
    left = before.join(seen.filter(~pl.col("is_new")), on=RUN_KEY, how="anti").join(
        given.looked, on=["host", "gpu"], how="left"
    )
    # a fleet whose exporters name nobody says nothing of who is gone
    can_tell = pl.col("until_ms").is_not_null() | pl.col("scheduler").is_in(seen["scheduler"].unique().implode())
    is_gone = (pl.col("first_ms") > pl.col("time")).fill_null(value=False) & can_tell
    is_silent = (pl.col("first_ms").is_null() & (pl.col("until_ms") < as_of_ms - _SILENT_MS)).fill_null(value=False)
    ended = left.filter(is_gone | is_silent).with_columns(
        end=pl.coalesce("until_ms", "first_ms"), is_new=pl.lit(value=False), user=pl.lit(None, pl.String)
    )
    again = seen.filter("is_new").select(*RUN_KEY, "time")
    waiting = left.filter(~is_gone & ~is_silent).join(again, on=[*RUN_KEY, "time"], how="anti")
    rows = pl.concat([seen, ended.select(seen.columns)], how="vertical_relaxed")
    return LabelRuns(rows, waiting.select(list(RUN_SCHEMA)))


def _holders(stretches: pl.DataFrame) -> pl.DataFrame:
    """Adds scheduler and claim_id, and leaves out who cannot be named; inside a pod that runs Slurm's jobs the job is the holder."""
    job, pod, namespace = (pl.col(name).str.strip_chars() for name in ("slurm_job", "pod", "namespace"))
    is_job = (~job.is_in(_NO_JOB)).fill_null(value=False)
    is_pod = ((pod != "") & (namespace != "")).fill_null(value=False)
    named = stretches.with_columns(
        scheduler=pl.when(is_job).then(pl.lit("slurm")).when(is_pod).then(pl.lit("kubernetes")),
        claim_id=pl.when(is_job).then(job).otherwise(namespace + "/" + pod),
    )
    return named.drop_nulls("scheduler")


def _pieces(holders: pl.DataFrame) -> pl.DataFrame:
    """One row per GPU, holder and time in which no sample of the GPU was without it."""
    ordered = holders.sort(*RUN_KEY, "start_ms")
    reach = pl.col("next_ms").fill_null(2**62).cum_max().shift(1).over(RUN_KEY)
    starts = (pl.col("start_ms") > reach).fill_null(value=True)
    return (
        ordered.with_columns(piece=starts.cum_sum())
        .group_by(*RUN_KEY, "piece", maintain_order=True)
        .agg(
            first_ms=pl.col("start_ms").min(),
            until_ms=pl.col("until_ms").max(),
            runs=pl.col("next_ms").is_null().any(),
            user=pl.col("user").drop_nulls().last(),
        )
    )


def _runs(pieces: pl.DataFrame) -> pl.DataFrame:
    """One row per run and GPU; all GPUs of a run have its start."""
    holder = ["scheduler", "claim_id"]
    ordered = pieces.sort(*holder, "first_ms")
    reach = (pl.col("until_ms") + NEAR_MS).cum_max().shift(1).over(holder)
    starts = (pl.col("first_ms") > reach).fill_null(value=True)
    numbered = ordered.with_columns(run=starts.cum_sum()).with_columns(time=pl.col("first_ms").min().over("run"))
    return numbered.group_by(*RUN_KEY, "run", "time", maintain_order=True).agg(
        pl.col("first_ms").min(),
        pl.col("until_ms").max(),
        end=pl.when(~pl.col("runs").any()).then(pl.col("until_ms").max()),
        user=pl.col("user").drop_nulls().last(),
    )


def _gone_on(runs: pl.DataFrame, looked: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """The runs, those that the window before left open with their own start."""
    known = before.select(*RUN_KEY, "told", began="time").sort("began").unique(RUN_KEY, keep="last")
    met = runs.join(looked.rename({"first_ms": "looked_ms"}), on=["host", "gpu"], how="left").join(
        known, on=RUN_KEY, how="left"
    )
    goes_on = (pl.col("first_ms") <= pl.col("looked_ms")) & (pl.col("began") <= pl.col("first_ms"))
    met = met.with_columns(is_new=~goes_on.fill_null(value=False))
    began = pl.col("began").filter(~pl.col("is_new")).min().over("run")
    return met.with_columns(
        time=pl.coalesce(began, "time"), told=(pl.col("told") & ~pl.col("is_new")).fill_null(value=False)
    ).select(*RUN_KEY, "time", "first_ms", "until_ms", "end", "user", "told", "is_new")
