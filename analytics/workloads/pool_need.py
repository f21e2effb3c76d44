"""What each pool and model of the fleet needs at once, as of the end of the window: made once for whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.states import IN_USE
from analytics.workloads.confidence import UNCONFIRMED_MAX
from analytics.workloads.ledger_rows import whole_number
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.surplus import (
    HISTORY_MAX_DAYS,
    MARGIN,
    Backtest,
    Surplus,
    backtest,
    demand,
    errors,
    estimate,
    largest_errors,
)
from analytics.workloads.window_end import last_rows
from fallow.clock import DAY_MS, WEEK_MS

POOL_MIN_GPUS = 8
"""One whole host: how far off the estimates of smaller pools were says nothing of larger ones."""

PoolModel = tuple[str, str]
"""The name of a pool and that of a model."""


@dataclass(frozen=True)
class PoolNeed:
    """GPUs of one model in one pool that can do work at the end of the window, and what of them is needed.

    `gpus` has gpu, host, gpu_share, state, holder_source, is_sampled (whether point samples alone call it idle) and used_ms, for how
    long it was in use within the history. `members` has gpu,
    host and gpu_share of all that were in it within the history, those that are out of order or silent now included: `hours`, what
    `demand` says of each hour, is about them. `estimate` is None where the history is too short. `a_week_ago` is how many of
    `gpus` were there then.
    """

    pool: str
    model: str
    gpus: pl.DataFrame
    members: pl.DataFrame
    hours: pl.DataFrame
    estimate: Surplus | None
    until_ms: int
    a_week_ago: float

    @property
    def count(self) -> float:
        """How many GPUs they are; a MIG instance counts its share."""
        return float(self.gpus["gpu_share"].sum())

    def backtest(self, margin: float = MARGIN) -> Backtest | None:
        """What the last week says of the estimate at its start."""
        return backtest(self.pool, self.a_week_ago, self.hours, self.until_ms, margin)


@once_per_context
def pool_needs(context: Context) -> Mapping[PoolModel, PoolNeed]:
    """The need by pool and model."""
    now = _in_order(context)
    if now.is_empty():
        return {}
    members = _members(context)
    hours = demand(context.whole.stretches, members, context.until_ms)
    own = {
        (pool, model): (gpus, members.filter(pool=pool, model=model), hours.filter(pool=pool, model=model))
        for (pool, model), gpus in now.group_by("pool", "model", maintain_order=True)
    }
    off = largest_errors(
        errors(pool, float(gpus["gpu_share"].sum()), each, context.until_ms)
        for (pool, _), (gpus, _, each) in own.items()
        if gpus["gpu_share"].sum() >= POOL_MIN_GPUS
    )
    return {of: _need(context, of, frames, off) for of, frames in own.items()}


def _need(
    context: Context,
    of: PoolModel,
    frames: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame],
    off: tuple[float, float] | None,
) -> PoolNeed:
    gpus, members, hours = frames
    found = estimate(of[0], float(gpus["gpu_share"].sum()), hours, context.until_ms)
    before = context.whole.stretches.filter(pl.col("time") < context.until_ms - WEEK_MS)["gpu"].unique()
    return PoolNeed(
        *of,
        gpus,
        members,
        hours,
        None if found is None else replace(found, next_week_errors=off),
        context.until_ms,
        float(gpus.filter(pl.col("gpu").is_in(before.implode()))["gpu_share"].sum()),
    )


def history_start_ms(context: Context) -> int:
    """From when on the history of needs counts."""
    first_ms = whole_number(context.whole.stretches, pl.col("time").min())
    return max(first_ms, context.until_ms - HISTORY_MAX_DAYS * DAY_MS)


def _in_order(context: Context) -> pl.DataFrame:
    """The GPUs of the fleet that can do work at the end of the window: the columns of `PoolNeed.gpus`, pool and model."""
    last = last_rows(context).filter((pl.col("state") != "unavailable") & (pl.col("gpu_share") > 0))
    own = ("gpu", "host", "gpu_share", "state", "holder_source", "stretch_start")
    is_sampled = pl.col("unconfirmed_ms") > UNCONFIRMED_MAX * (pl.col("end") - pl.col("time"))
    since_ms = history_start_ms(context)
    active = context.whole.stretches.filter((pl.col("end") > since_ms) & pl.col("state").is_in(IN_USE))
    used = active.group_by("gpu").agg(used_ms=SPAN_MS.sum())
    found = last.select(*own, is_sampled=is_sampled).join(used, on="gpu", how="left", maintain_order="left")
    return in_pools(context, found.with_columns(pl.col("used_ms").fill_null(0)))


def _members(context: Context) -> pl.DataFrame:
    """Every GPU that was seen within the history, by what was seen last: gpu, host, gpu_share, pool and model.

    The work of those that are gone, silent or out of order has to go somewhere.
    """
    since_ms = history_start_ms(context) - WEEK_MS
    rows = context.whole.stretches.filter(
        (pl.col("end") > since_ms) & (pl.col("state") != "unknown") & (pl.col("gpu_share") > 0)
    )
    last = rows.sort("gpu", "end").unique("gpu", keep="last", maintain_order=True)
    return in_pools(context, last.select("gpu", "host", "gpu_share"))


def in_pools(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """With pool and model of each GPU."""
    gpus = [context.inventory.card_of(gpu) for gpu in rows["gpu"]]
    return rows.with_columns(
        pool=pl.Series([context.inventory.pool(gpu) for gpu in gpus], dtype=pl.String),
        model=pl.Series([context.inventory.model(gpu) for gpu in gpus], dtype=pl.String),
    )
