"""How much of the time in use was really used: `active` counts whole, `low` by its mean activity."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

LOW_ACTIVITY = ("sm_active_mean_pct", "gpu_util_mean_pct")
"""What `low` time is weighted by: SM activity where it was measured, else utilization, which counts a GPU as busy while any kernel runs."""


def used_share(measured: Sequence[str] = LOW_ACTIVITY) -> pl.Expr:
    """The used share of a ledger row's time, from 0 to 1, by those columns of LOW_ACTIVITY that the rows have.

    1 for `low` time whose activity is not known: nothing is called unused that was not measured.
    """
    low = (pl.coalesce(*measured, pl.lit(None, pl.Float64)) / 100).clip(0.0, 1.0).fill_null(1.0)
    state = pl.col("state")
    return pl.when(state == "active").then(1.0).when(state == "low").then(low).otherwise(0.0)


def by_sm_activity(measured: Sequence[str] = LOW_ACTIVITY) -> pl.Expr:
    """Whether SM activity is what weights a ledger row; false for all but `low` time."""
    sm = LOW_ACTIVITY[0]
    known = pl.col(sm).is_not_null() if sm in measured else pl.lit(value=False)
    return (pl.col("state") == "low") & known
