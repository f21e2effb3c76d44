"""Idle intervals of a ledger: which user had a GPU without a kernel, from when to when, and whether use ended it."""

from __future__ import annotations

import polars as pl

from analytics.intervals import islands, one_row_each
from analytics.names import JOINER
from analytics.states import WITH_KERNELS, WITHOUT_EVIDENCE
from fallow.clock import MINUTE_MS

ANYBODY = ""
"""Stands for an unknown user, who may be any user."""
TOGETHER_MS = MINUTE_MS
"""GPUs that a user left within this time count as left by one decision."""


def idle_intervals(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the times without a kernel, cut where the kind of holding or the user changes.

    Columns:
        gpu, host: the GPU and its host.
        kind: `free`, `reserved` or `held`.
        user: the user who reserves or holds the GPU, ANYBODY if unknown.
        time, end: time with this kind and user.
        began, stop: time without any kernel.
        is_first: whether the GPU was not used since it was first observed.
        ended: whether use ended it: of a held GPU by its own user or an unknown user, else by any user. False if the
            GPU was lost from sight.
        is_last: whether nothing later is known of the GPU.
        weight: 1, shared among the GPUs that a user left together, and among the GPUs of a host that were idle from the
            start.

    Args:
        segments: gpu, host, time, end, state and user of ledger rows. Rows of a GPU must not overlap.
    """
    state, user = pl.col("state").cast(pl.String), pl.col("user").fill_null(ANYBODY)
    use = (
        pl.when(state.is_in(WITH_KERNELS))
        .then(pl.lit("used"))
        .when(state.is_in(WITHOUT_EVIDENCE))
        .then(pl.lit("unseen"))
    )
    rows = (
        segments.select("gpu", "host", "time", "end", kind=pl.coalesce(use, state).cast(pl.Categorical), user=user)
        .sort("gpu", "time")
        .with_columns(user=pl.when(pl.col("kind") == "unseen").then(pl.lit(ANYBODY)).otherwise("user"))
    )
    parts = one_row_each(rows, islands(("gpu", "kind", "user"))).with_columns(
        is_idle=~pl.col("kind").is_in(["used", "unseen"]),
        first=pl.col("time").min().over("gpu"),
        last=pl.col("end").max().over("gpu"),
        before=_neighbour_user(1),
        after=_neighbour_user(-1),
    )
    parts = parts.with_columns(run=islands(("gpu", "is_idle")))
    runs = one_row_each(parts, pl.col("run"), ("end", "after"))
    runs = runs.select("before", "after", began="time", stop="end")
    idle = parts.filter("is_idle")
    idle = idle.with_columns(runs[idle["run"] - 1])  # runs count from 1
    held = pl.col("kind") == "held"
    own = _share_user(pl.col("user"), pl.col("after"))
    begun = (pl.coalesce("before", "host"), pl.col("before").is_null(), pl.col("time") // TOGETHER_MS)
    return idle.select(
        "gpu",
        "host",
        "kind",
        "user",
        "time",
        "end",
        "began",
        "stop",
        is_first=pl.col("began") == pl.col("first"),
        ended=(pl.col("after").is_not_null() & (~held | own)).fill_null(value=False),
        is_last=pl.col("end") == pl.col("last"),
        weight=1.0 / pl.len().over(begun),
    )


def _neighbour_user(step: int) -> pl.Expr:
    """Return the user who used the GPU right before (1) or after (-1) a row; null without one."""
    here, there = ("time", "end") if step > 0 else ("end", "time")
    touches = (pl.col("gpu").shift(step) == pl.col("gpu")) & (pl.col(there).shift(step) == pl.col(here))
    return pl.when(touches & (pl.col("kind").shift(step) == "used")).then(pl.col("user").shift(step))


def _share_user(user: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Return whether two joint users have a user in common; an unknown user may be any user."""
    names, others = (each.cast(pl.String).str.split(JOINER) for each in (user, other))
    both = names.list.set_intersection(others).list.len() > 0
    return both | (user == ANYBODY) | (other == ANYBODY)
