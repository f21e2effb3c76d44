"""When the jobs of a window worked and when they stood idle, as the ledger saw their GPUs."""

from __future__ import annotations

import polars as pl

from analytics.intervals import merge
from analytics.states import IDLE_ALLOCATED, IN_USE

NUMBERED_ROWS = ("number", "host", "gpu", "holder", "account", "job", "time", "end", "state")
"""Columns of the ledger's whole GPUs by the job that had them: `number` is the job's, `job` what the ledger calls those on the GPU."""


def idle_spells(rows: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """How each job used its GPUs: `number`, `gpus_used`, `used_ms` and `idle_spells` of REPLAY_JOB_SCHEMA.

    A job stands idle while somebody has all of its GPUs and none of them works; time that nobody observed is no idle time. All are
    null where the ledger did not see all of its GPUs. Spells that began before the window are known from its start on.

    Args:
        rows: with NUMBERED_ROWS.
        jobs: `number`, `gpus` and `started` of each.
    """
    in_use = pl.col("state").is_in(IN_USE)
    seen = rows.group_by("number").agg(
        seen=pl.col("gpu").n_unique(),
        gpus_used=pl.col("gpu").filter(in_use).n_unique().cast(pl.Int32),
        last_use=pl.col("end").filter(in_use).max(),
    )
    known = jobs.join(seen, on="number").filter(pl.col("seen") >= pl.col("gpus"))
    spells = _all_idle(rows.join(known.select("number", "seen"), on="number"))
    timed = spells.join(known.select("number", "started"), on="number").select(
        "number", idle_spells=pl.struct(begin=pl.col("time") - pl.col("started"), end=pl.col("end") - pl.col("started"))
    )
    by_job = timed.group_by("number", maintain_order=True).agg("idle_spells")
    found = known.select("number", "gpus_used", used_ms=pl.col("last_use") - pl.col("started"))
    none = pl.lit([], by_job.schema["idle_spells"])
    return found.join(by_job, on="number", how="left").with_columns(pl.col("idle_spells").fill_null(none))


def _all_idle(rows: pl.DataFrame) -> pl.DataFrame:
    """`number`, `time` and `end` of the times in which as many GPUs of a job stood idle as it has (`seen`)."""
    idle = rows.filter(pl.col("state").is_in(IDLE_ALLOCATED))
    changes = pl.concat(
        [idle.select("number", "seen", at=name, step=pl.lit(step)) for name, step in (("time", 1), ("end", -1))]
    )
    moments = changes.group_by("number", "seen", "at").agg(pl.col("step").sum()).sort("number", "at")
    counted = moments.with_columns(
        idle=pl.col("step").cum_sum().over("number"), end=pl.col("at").shift(-1).over("number")
    )
    spans = counted.filter(pl.col("idle") == pl.col("seen")).select("number", "end", time="at")
    return merge(spans, ("number",))
