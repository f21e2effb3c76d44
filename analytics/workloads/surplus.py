"""How many of a pool's GPUs are needed at once, what that leaves, and whether last week's answer held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.intervals import merge
from analytics.states import IN_USE
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS, floor_ms

QUANTILES = {"low": 0.99, "point": 0.95, "high": 0.90}
QUANTILES_PROD = {"low": 1.0, "point": 0.99, "high": 0.95}
MARGIN = 0.15
RECENT_MS = 30 * MINUTE_MS
HISTORY_MAX_DAYS = 28
HISTORY_MIN_DAYS = 7
UNKNOWN_MAX = 0.1
BACKTEST_SEEN_MIN = 0.9
"""Share of the hours since that has to be known, as everywhere else."""
BLOCKS = (8, 4, 2, 1)


@dataclass(frozen=True)
class Surplus:
    """What was needed at once of a pool's GPUs, and what that leaves."""

    gpus: float
    days: float
    need: Mapping[str, float]
    quantile: float
    largest: float

    def wanted(self, bound: str) -> int:
        """What was needed, with the reserve: ceil(Q(D) * 1.15 * (1 + 1/days))."""
        return math.ceil(round(self.need[bound] * (1 + MARGIN) * (1 + 1 / self.days), 6))

    def left(self, bound: str) -> int:
        """R = N - ceil(Q(D) * 1.15 * (1 + 1/days)), never below 0."""
        return max(0, math.floor(round(self.gpus - self.wanted(bound), 6)))


@dataclass(frozen=True)
class Backtest:
    """What the hours of the last week say of what was estimated at its start: that N - R GPUs would be enough."""

    surplus: int
    enough: int
    """What was to be kept."""
    hours: int
    exceeded: int
    largest: float
    quantile: float

    @property
    def held(self) -> bool:
        return self.exceeded <= (1 - self.quantile) * self.hours


@dataclass(frozen=True)
class PoolSurplus:
    """The GPUs of one model in one pool that are beyond its need, and on which hosts the least used of them are."""

    pool: str
    model: str
    estimate: Surplus
    backtest: Backtest | None
    free_now: int
    gpus_by_host: Mapping[str, int]

    @property
    def in_blocks(self) -> dict[int, int]:
        """By size of block how many of the GPUs are in blocks of that size, on one host each."""
        return {size: sum(n // size * size for n in self.gpus_by_host.values()) for size in BLOCKS}


def demand(stretches: pl.DataFrame, gpus: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Per pool, model and hour: `needed`, `unknown` and `needed_or_unknown`, each the most GPUs at once.

    Over a week more than `estimate` looks at, for `backtest` stands a week earlier.

    Args:
        stretches: all that was known at the end of the window.
        gpus: gpu, pool and model.
        until_ms: the end of the window.
    """
    key = ("pool", "model")
    first_ms = int(stretches.select(pl.col("time").min()).item())
    since_ms = max(first_ms, until_ms - HISTORY_MAX_DAYS * DAY_MS - WEEK_MS)
    own = gpus.select("gpu", *key)
    rows = stretches.filter(pl.col("end") > since_ms).join(own, on="gpu")
    spans = ("gpu", "time", "end", "gpu_share")
    unknown = rows.filter(pl.col("state") == "unknown")
    working = merge(rows.filter(pl.col("state").is_in(IN_USE)), tail_ms=RECENT_MS).join(own, on="gpu")
    either = merge(pl.concat([working.select(spans), unknown.select(spans)])).join(own, on="gpu")
    first, last = -(-since_ms // HOUR_MS) * HOUR_MS, floor_ms(until_ms, HOUR_MS)
    hours = pl.select(time=pl.int_range(first, last, HOUR_MS, dtype=pl.Int64))
    found = gpus.select(key).unique().join(hours, how="cross")
    for name, each in (("needed", working), ("unknown", unknown), ("needed_or_unknown", either)):
        most = hourly_most(each, key, since_ms, until_ms).rename({"most": name})
        found = found.join(most, on=(*key, "time"), how="left").with_columns(pl.col(name).fill_null(0.0))
    return found.sort("time")


def estimate(pool: str, gpus: float, hours: pl.DataFrame, until_ms: int) -> Surplus | None:
    """What the hours of `demand` of one pool and model say as of a moment; None where too little of them is known."""
    recent = hours.filter(pl.col("time") >= until_ms - HISTORY_MAX_DAYS * DAY_MS, pl.col("time") + HOUR_MS <= until_ms)
    known = recent.filter(pl.col("unknown") <= UNKNOWN_MAX * gpus)
    days = known.height / 24
    if days < HISTORY_MIN_DAYS:
        return None
    quantiles = _quantiles(pool)
    # demand that grew within the month is that of its last week
    lately = known.filter(pl.col("time") >= until_ms - 7 * DAY_MS)
    need = {
        bound: max(
            _quantile(frame, "needed_or_unknown" if bound == "low" else "needed", share)
            for frame in (known, lately)
            if not frame.is_empty()
        )
        for bound, share in quantiles.items()
    }
    return Surplus(gpus, days, need, quantiles["point"], _quantile(known, "needed", 1.0))


def backtest(pool: str, gpus: float, hours: pl.DataFrame, until_ms: int) -> Backtest | None:
    """The estimate of a week earlier against the hours since; None where too little is known of before or after.

    Args:
        pool: its name.
        gpus: how many of its GPUs were there a week earlier.
        hours: those of `demand`.
        until_ms: the end of the window.
    """
    then_ms = floor_ms(until_ms, HOUR_MS) - WEEK_MS
    before = estimate(pool, gpus, hours, then_ms) if gpus else None
    since = hours.filter((pl.col("time") >= then_ms) & (pl.col("unknown") <= UNKNOWN_MAX * gpus))
    if before is None or since.height < BACKTEST_SEEN_MIN * WEEK_MS / HOUR_MS:
        return None
    exceeded = since.filter(pl.col("needed") > before.wanted("point")).height
    largest = _quantile(since, "needed", 1.0)
    return Backtest(before.left("point"), before.wanted("point"), since.height, exceeded, largest, before.quantile)


def _quantiles(pool: str) -> Mapping[str, float]:
    return QUANTILES_PROD if "prod" in pool.lower() else QUANTILES


def _quantile(hours: pl.DataFrame, column: str, share: float) -> float:
    """The least value that at least this share of the hours does not exceed."""
    return float(hours[column].sort()[max(0, math.ceil(round(share * hours.height, 6)) - 1)])
