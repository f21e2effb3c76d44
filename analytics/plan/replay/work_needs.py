"""What the work of a window needs of each GPU: memory, and how much of the card it makes use of."""

from __future__ import annotations

import polars as pl

from analytics.plan.replay.replay_jobs import WORK_NEEDS
from analytics.workloads.model import Context
from analytics.workloads.runs import busy_percentiles, runs_with_memory
from analytics.workloads.workloads import BUSY_SHARE


def work_needs(context: Context) -> pl.DataFrame:
    """One row per GPU, holder and job, with WORK_NEEDS.

    `need_bytes` is that of right-sizing, null where memory is reserved ahead. `sm_pct` is what SM activity stays within for 95 % of the time; the
    time with any kernel where SM activity was not measured, which is more.
    """
    found = busy_percentiles(context, runs_with_memory(context), BUSY_SHARE)
    return found.with_columns(sm_pct=pl.coalesce("sm_pct", "util_pct")).select(
        pl.col(name).cast(kind) for name, kind in WORK_NEEDS.items()
    )
