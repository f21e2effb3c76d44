"""How many GPUs of each pool and model were in use or asked for, hour by hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.capacity.demand import duration
from analytics.intervals import by_hour
from analytics.plan.waiting_jobs import IS_COUNTED, POOL_MODEL, jobs_in_window, located
from analytics.states import ALLOCATED, IN_USE
from analytics.workloads.surplus import UNKNOWN_MAX
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class NeedCurve:
    """The need of one pool and model.

    `hours` has one row for each whole hour of which at least 90 % of the GPUs were observed: `time`, and the GPUs of the `need` (the most in
    use at once, and those that jobs waited for, on average over the hour), of the `firm` part of it (whose work must not be interrupted), and
    `taken` (the need, and what was held or reserved without use). `gpus` are there at most at once; `unseen` hours were left out.
    """

    pool: str
    model: str
    gpus: float
    hours: pl.DataFrame
    unseen: int

    @property
    def duration(self) -> pl.DataFrame:
        """The demand curve: in how many hours at least so many `gpus` were needed."""
        return duration(self.hours["need"])


def need_curves(
    placed: pl.DataFrame,
    jobs: pl.DataFrame,
    window: tuple[int, int],
    may_stop: Callable[[str | None, str | None], bool],
) -> tuple[NeedCurve, ...]:
    """The curves, by pool and model.

    Args:
        placed: the ledger's rows of the window with `pool` and `model`; a MIG instance counts its share.
        jobs: with JOB_SCHEMA; what a job waits for counts while it waits, where its pool is known.
        window: its start and end in ms; hours that are not wholly in it are left out.
        may_stop: whether the work of a user and an account may be interrupted.
    """
    rows = placed.filter(pl.col("gpu_share") > 0)
    own = [*POOL_MODEL, "time", "end", "gpu_share", "holder", "account", "state"]
    asked = _asked(placed, jobs, window)
    pairs = pl.concat([each.select("holder", "account") for each in (rows, asked)]).unique()
    stops = pairs.with_columns(stops=pl.Series([may_stop(*pair) for pair in pairs.iter_rows()], dtype=pl.Boolean))
    rows, asked = (each.join(stops, on=["holder", "account"], nulls_equal=True) for each in (rows.select(own), asked))
    in_use = rows.filter(pl.col("state").is_in(IN_USE))
    spans = {
        "there": rows,
        "in_use": in_use,
        "firm": in_use.filter(~pl.col("stops")),
        "taken": rows.filter(pl.col("state").is_in(ALLOCATED)),
        "unknown": rows.filter(pl.col("state") == "unknown"),
    }
    levels = (hourly_most(each, POOL_MODEL, *window).rename({"most": name}) for name, each in spans.items())
    means = (_mean(asked, "asked"), _mean(asked.filter(~pl.col("stops")), "firm_asked"))
    key = (*POOL_MODEL, "time")
    hours = reduce(lambda found, each: found.join(each, on=key, how="left"), [*levels, *means])
    hours = hours.filter(pl.col("there") > 0).fill_null(0.0).sort(key)
    hours = hours.with_columns(
        need=pl.col("in_use") + pl.col("asked"),
        firm=pl.col("firm") + pl.col("firm_asked"),
        taken=pl.col("taken") + pl.col("asked"),
    )
    found = hours.group_by(POOL_MODEL, maintain_order=True)
    return tuple(_curve(str(pool), str(model), own_hours) for (pool, model), own_hours in found)


def with_spot_share(curve: NeedCurve, share: float) -> NeedCurve:
    """The same need, of which another share may be interrupted in every hour."""
    return replace(curve, hours=curve.hours.with_columns(firm=pl.col("need") * (1 - share)))


def _mean(asked: pl.DataFrame, name: str) -> pl.DataFrame:
    """The GPUs that were waited for in each hour, as long as they were: ten minutes count a sixth."""
    waited = pl.col("gpus") * (pl.col("end") - pl.col("time")) / HOUR_MS
    return by_hour(asked).group_by(*POOL_MODEL, time="hour").agg(waited.sum().alias(name))


def _asked(placed: pl.DataFrame, jobs: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """The GPUs that jobs waited for, while they waited."""
    known, _ = located(jobs, placed)
    waiting = jobs_in_window(known, *window).filter(
        IS_COUNTED, pl.col("pool").is_not_null(), pl.col("until") > pl.col("begin")
    )
    return waiting.select(
        *POOL_MODEL,
        pl.col("begin").cast(pl.Int64).alias("time"),
        pl.col("until").cast(pl.Int64).alias("end"),
        pl.col("gpus").cast(pl.Float64),
        pl.col("user").alias("holder"),
        "account",
    )


def _curve(pool: str, model: str, hours: pl.DataFrame) -> NeedCurve:
    seen = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * pl.col("there"))
    gpus = float(hours["there"].max() or 0.0)  # type: ignore[arg-type]  # a column of numbers
    return NeedCurve(pool, model, gpus, seen.select("time", "need", "firm", "taken"), hours.height - seen.height)
