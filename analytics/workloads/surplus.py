"""How many of a pool's GPUs are needed at once, what that leaves now and next week, and whether last week's answer held."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.demand import hourly_most
from analytics.intervals import merge
from analytics.states import IN_USE
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS, floor_ms

QUANTILE, QUANTILE_PROD = 0.95, 0.99
NEXT_WEEK_MIN = 0.9
"""How often next week's need lies inside the interval that is said of it; `make calibrate` counts."""
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
    need: float
    need_or_unknown: float
    """The same if nobody had rested while nobody looked."""
    quantile: float
    largest: float
    next_week_errors: tuple[float, float] | None = None
    """How far the need of the week to come is below and above `need` at most, as `largest_errors` says; None where it is not known."""

    @property
    def wanted(self) -> int:
        """What was needed, with the reserve."""
        return self.wanted_with(MARGIN)

    def wanted_with(self, margin: float) -> int:
        """The same with another reserve: the share by which more is kept than was needed."""
        return self._wanted(self.need, margin)

    @property
    def left(self) -> int:
        """R = N - ceil(Q(D) * 1.15 * (1 + 1/days)), never below 0."""
        return self.left_of(self.wanted)

    @property
    def left_if_unknown_is_need(self) -> int:
        return self.left_of(self._wanted(self.need_or_unknown))

    @property
    def next_week(self) -> tuple[int, int] | tuple[None, None]:
        """What next week leaves without any reserve, from low to high; `left`, which keeps one, is never outside."""
        if self.next_week_errors is None:
            return None, None
        lower, higher = (error * math.sqrt(self.gpus) for error in self.next_week_errors)
        low, high = self.left_of(self.need + higher), self.left_of(max(0.0, self.need - lower))
        return min(low, self.left), max(high, self.left)

    def _wanted(self, need: float, margin: float = MARGIN) -> int:
        return math.ceil(round(need * (1 + margin) * (1 + 1 / self.days), 6))

    def left_of(self, kept: float) -> int:
        """How many whole GPUs go where so many are kept."""
        return 0 if kept >= self.gpus else math.floor(round(self.gpus - kept, 6))


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
    known = _known(hours, gpus, until_ms - HISTORY_MAX_DAYS * DAY_MS, until_ms)
    days = known.height / 24
    if days < HISTORY_MIN_DAYS:
        return None
    # demand that grew within the month is that of its last week
    lately = known.filter(pl.col("time") >= until_ms - WEEK_MS)
    frames, quantile = [frame for frame in (known, lately) if not frame.is_empty()], quantile_of(pool)
    need, either = (
        max(_quantile(frame[name].to_numpy(), quantile) for frame in frames) for name in ("needed", "needed_or_unknown")
    )
    return Surplus(gpus, days, need, either, quantile, _quantile(known["needed"].to_numpy(), 1.0))


def _known(hours: pl.DataFrame, gpus: float, since_ms: int, until_ms: int) -> pl.DataFrame:
    """The whole hours of a time in which enough of the pool was observed."""
    inside = (pl.col("time") >= since_ms) & (pl.col("time") + HOUR_MS <= until_ms)
    return hours.filter(inside & (pl.col("unknown") <= UNKNOWN_MAX * gpus))


def errors(pool: str, gpus: float, hours: pl.DataFrame, until_ms: int) -> list[float]:
    """By how many GPUs the need of a week was above what was estimated before it, for each week that a day begins.

    Over the root of the GPUs, so that large and small pools can be compared: of GPUs that are needed independently of each
    other, that is how the number in use varies. Weeks overlap; nothing of a week that was not observed.
    """
    found = []
    for back_ms in range(WEEK_MS, (HISTORY_MAX_DAYS + 1) * DAY_MS, DAY_MS):
        then_ms = floor_ms(until_ms, HOUR_MS) - back_ms
        since = _known(hours, gpus, then_ms, then_ms + WEEK_MS)
        before = estimate(pool, gpus, hours, then_ms)
        if before is None:
            break
        if since.height >= BACKTEST_SEEN_MIN * WEEK_MS / HOUR_MS:
            need = _quantile(since["needed"].to_numpy(), before.quantile)
            found.append((need - before.need) / math.sqrt(gpus))
    return found


def largest_errors(pools: Iterable[list[float]]) -> tuple[float, float] | None:
    """How far below and above its estimate a week stays in NEXT_WEEK_MIN of all weeks, over the root of the GPUs; None where no week is known.

    Split conformal prediction over rolling origins, half of the misses on either side (Vovk et al. 2005; Lei et al. 2018,
    doi:10.1080/01621459.2017.1307116), with as many weeks as do not overlap in place of n. All pools of a fleet are asked, for one
    has too few weeks. Where even they are fewer than 19, it is the largest error that there was.
    """
    known = [each for each in pools if each]
    if not known:
        return None
    weeks = sum(1 + (len(each) - 1) / 7 for each in known)
    share = min(1.0, math.ceil((weeks + 1) * (1 + NEXT_WEEK_MIN) / 2) / weeks)
    above = np.concatenate(known)
    return max(0.0, _quantile(-above, share)), max(0.0, _quantile(above, share))


def backtest(pool: str, gpus: float, hours: pl.DataFrame, until_ms: int, margin: float = MARGIN) -> Backtest | None:
    """The estimate of a week earlier against the hours since; None where too little is known of before or after.

    Args:
        pool: its name.
        gpus: how many of its GPUs were there a week earlier.
        hours: those of `demand`.
        until_ms: the end of the window.
        margin: the reserve, a share of what was needed.
    """
    then_ms = floor_ms(until_ms, HOUR_MS) - WEEK_MS
    before = estimate(pool, gpus, hours, then_ms) if gpus else None
    since = _known(hours, gpus, then_ms, until_ms)
    if before is None or since.height < BACKTEST_SEEN_MIN * WEEK_MS / HOUR_MS:
        return None
    enough = before.wanted_with(margin)
    exceeded = since.filter(pl.col("needed") > enough).height
    largest = _quantile(since["needed"].to_numpy(), 1.0)
    return Backtest(before.left_of(enough), enough, since.height, exceeded, largest, before.quantile)


def quantile_of(pool: str) -> float:
    """The share of the hours whose need a pool's reserve covers: more for production."""
    return QUANTILE_PROD if "prod" in pool.lower() else QUANTILE


def _quantile(values: NDArray[np.float64], share: float) -> float:
    """The least value that at least this share of them does not exceed."""
    return float(np.sort(values)[max(0, math.ceil(round(share * len(values), 6)) - 1)])
