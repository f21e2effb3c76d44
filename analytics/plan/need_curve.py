"""How many GPUs of each pool and model were in use or asked for, hour by hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.capacity.demand import duration
from analytics.plan.waiting_jobs import IS_COUNTED, POOL_MODEL, jobs_in_window, located
from analytics.states import ALLOCATED, IN_USE
from analytics.workloads.surplus import UNKNOWN_MAX

_SPANS = (*POOL_MODEL, "time", "end", "gpus")


@dataclass(frozen=True)
class NeedCurve:
    """The need of one pool and model.

    `hours` has one row for each whole hour of which at least 90 % of the GPUs were observed: `time`, and the most GPUs at once that
    were `need` (in use, or waited for by jobs), `firm` (those of them whose work must not be interrupted), `in_use`, and `taken` (need,
    and what was held or reserved without use). `gpus` are there at most at once; `unseen` hours were left out.
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
    rows = placed.filter(pl.col("gpu_share") > 0).rename({"gpu_share": "gpus"})
    own = [*_SPANS, "holder", "account"]
    asked = _asked(placed, jobs, window)
    used = rows.filter(pl.col("state").is_in(IN_USE)).select(own)
    need = pl.concat([used, asked])
    pairs = need.select("holder", "account").unique()
    stops = pairs.with_columns(stops=pl.Series([may_stop(*pair) for pair in pairs.iter_rows()], dtype=pl.Boolean))
    firm = need.join(stops, on=["holder", "account"], nulls_equal=True).filter(~pl.col("stops"))
    taken = pl.concat([rows.filter(pl.col("state").is_in(ALLOCATED)).select(own), asked])
    unknown = rows.filter(pl.col("state") == "unknown")
    hours = _most(rows, window).rename({"most": "there"})
    for name, spans in (("in_use", used), ("need", need), ("firm", firm), ("taken", taken), ("unknown", unknown)):
        hours = hours.join(_most(spans, window).rename({"most": name}), on=(*POOL_MODEL, "time"), how="left")
    hours = hours.filter(pl.col("there") > 0).fill_null(0.0).sort(*POOL_MODEL, "time")
    return tuple(
        _curve(str(pool), str(model), own_hours) for (pool, model), own_hours in hours.group_by(POOL_MODEL, maintain_order=True)
    )  # fmt: skip


def with_spot_share(curve: NeedCurve, share: float) -> NeedCurve:
    """The same need, of which another share may be interrupted in every hour."""
    return replace(curve, hours=curve.hours.with_columns(firm=pl.col("need") * (1 - share)))


def _most(spans: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    return hourly_most(spans, POOL_MODEL, *window, weight="gpus")


def _asked(placed: pl.DataFrame, jobs: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """The GPUs that jobs waited for, while they waited."""
    known, _ = located(jobs, placed)
    waiting = jobs_in_window(known, *window).filter(
        IS_COUNTED, pl.col("pool").is_not_null(), pl.col("until") > pl.col("begin")
    )
    return waiting.select(
        *POOL_MODEL, pl.col("begin").cast(pl.Int64).alias("time"), pl.col("until").cast(pl.Int64).alias("end"), pl.col("gpus").cast(pl.Float64), pl.col("user").alias("holder"), "account"
    )  # fmt: skip


def _curve(pool: str, model: str, hours: pl.DataFrame) -> NeedCurve:
    seen = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * pl.col("there"))
    gpus = float(hours["there"].max() or 0.0)  # type: ignore[arg-type]  # a column of numbers
    return NeedCurve(
        pool, model, gpus, seen.select("time", "need", "firm", "in_use", "taken"), hours.height - seen.height
    )
