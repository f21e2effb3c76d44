"""Peak demand of a pool: the GPUs to keep by its hourly demand, and the back-test of earlier estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.proportions import whole_ceil
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS, floor_ms

QUANTILE, QUANTILE_PROD = 0.95, 0.99
MARGIN = 0.15
"""The reserve: the share by which the kept GPUs exceed the peak demand."""
PEAK_DAYS = 28
HISTORY_MIN_DAYS = 7
UNKNOWN_MAX = 0.1
"""An hour counts if at most this share of the pool was not observed."""
SEEN_MIN = 0.9
"""A week is tested if at least this share of its hours counts."""
TESTED_WEEKS = 3
"""Weeks among the four weeks of a peak that have an earlier week to estimate from."""


@dataclass(frozen=True)
class PeakDemand:
    """Peak demand of a pool, in GPUs, by its hours of four weeks.

    Attributes:
        days: observed days that it rests on.
        quantile: the share of the hours in which demand stayed at or below `peak`.
        peak: the peak of four weeks or of the last week, whichever is higher.
        peak_if_unknown: the same if every unobserved GPU had been in demand.
        highest: the demand of the busiest hour.
    """

    days: float
    quantile: float
    peak: float
    peak_if_unknown: float
    highest: float

    def kept(self, margin: float = MARGIN) -> int:
        """Return ceil(peak * (1 + margin) * (1 + 1/days)): the GPUs to keep."""
        return self._with_reserve(self.peak, margin)

    @property
    def kept_if_unknown(self) -> int:
        """Return the GPUs to keep if every unobserved GPU had been in demand."""
        return self._with_reserve(self.peak_if_unknown, MARGIN)

    def reserve(self, margin: float = MARGIN) -> int:
        """Return the GPUs to keep beyond the peak."""
        return self.kept(margin) - whole_ceil(self.peak)

    def _with_reserve(self, peak: float, margin: float) -> int:
        return whole_ceil(peak * (1 + margin) * (1 + 1 / self.days))


@dataclass(frozen=True)
class Backtest:
    """Estimates of earlier weeks compared with the week after each.

    Attributes:
        weeks: weeks that could be tested.
        hours: their observed hours.
        shortfall_hours: hours in which demand exceeded the kept GPUs, while the pool had more.
        shortfall_gpus: the largest excess, in GPUs.
    """

    weeks: int
    hours: int
    shortfall_hours: int
    shortfall_gpus: int


def peak_demand(hours: pl.DataFrame, until_ms: int, quantile: float) -> PeakDemand | None:
    """Return the peak as of a moment; None if too few earlier hours were observed.

    `hours` has `time`, `there`, `demand`, `unknown` and `demand_or_unknown` of a pool by hour, in GPUs. The peak covers
    the share `quantile` of the hours.
    """
    known = _known(hours, until_ms - PEAK_DAYS * DAY_MS, until_ms)
    days = _days(known)
    if days < HISTORY_MIN_DAYS:
        return None
    # demand that grew within the month is that of its last week
    last_week = known.filter(pl.col("time") >= until_ms - WEEK_MS)
    frames = [frame for frame in (known, last_week) if not frame.is_empty()]
    peak, either = (
        max(_quantile(frame[name].to_numpy(), quantile) for frame in frames) for name in ("demand", "demand_or_unknown")
    )
    return PeakDemand(days, quantile, peak, either, _quantile(known["demand"].to_numpy(), 1.0))


def known_days(hours: pl.DataFrame, until_ms: int) -> float:
    """Return the observed part of the four weeks before a moment, in days of whole hours."""
    return _days(_known(hours, until_ms - PEAK_DAYS * DAY_MS, until_ms))


def _days(hours: pl.DataFrame) -> float:
    return hours.height / 24


def backtests(hours: pl.DataFrame, until_ms: int, quantile: float, margins: Sequence[float]) -> list[Backtest | None]:
    """Return by margin the back-test of the estimate before each of the last weeks; None if no week can be tested."""
    used = pl.min_horizontal("demand", "there").alias("used")
    weeks: list[tuple[PeakDemand, NDArray[np.float64]]] = []
    for then_ms, since in _tested_weeks(hours, until_ms):
        before = peak_demand(hours, then_ms, quantile)
        if before is None:
            break
        weeks.append((before, since.select(used)["used"].to_numpy()))
    if not weeks:
        return [None for _ in margins]
    over = [np.concatenate([week - before.kept(margin) for before, week in weeks]) for margin in margins]
    return [
        Backtest(len(weeks), len(each), int((each > 0).sum()), whole_ceil(max(0.0, float(each.max())))) for each in over
    ]


def kept_peak(hours: pl.DataFrame, until_ms: int, quantile: float) -> tuple[PeakDemand, Backtest | None] | None:
    """Return the peak to keep GPUs for, and its back-test; None if too few hours were observed.

    The peak is that of the quantile, if the shortfall of earlier estimates never exceeded their reserve; else the
    highest demand.
    """
    found = None
    for share in (quantile, 1.0):
        peak, tested = peak_demand(hours, until_ms, share), backtests(hours, until_ms, share, (MARGIN,))[0]
        if peak is None:
            return None
        found = peak, tested
        if tested is None or tested.shortfall_gpus <= peak.reserve():
            break
    return found


def quantile_of(pool: str) -> float:
    """Return the share of hours whose demand a pool keeps GPUs for: more for production."""
    return QUANTILE_PROD if "prod" in pool.lower() else QUANTILE


def _tested_weeks(hours: pl.DataFrame, until_ms: int) -> Iterable[tuple[int, pl.DataFrame]]:
    """Yield the moments one and more weeks before the end, each with the observed hours of the week after it."""
    end_ms = floor_ms(until_ms, HOUR_MS)
    for back_ms in range(WEEK_MS, TESTED_WEEKS * WEEK_MS + 1, WEEK_MS):
        since = _known(hours, end_ms - back_ms, end_ms - back_ms + WEEK_MS)
        if since.height >= SEEN_MIN * WEEK_MS / HOUR_MS:
            yield end_ms - back_ms, since


def _known(hours: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Return the whole hours of a time in which enough of the pool was observed."""
    inside = (pl.col("time") >= since_ms) & (pl.col("time") + HOUR_MS <= until_ms)
    return hours.filter(inside & (pl.col("unknown") <= UNKNOWN_MAX * pl.col("there")))


def _quantile(values: NDArray[np.float64], share: float) -> float:
    """Return the lowest value that at least this share of the values does not exceed."""
    return float(np.sort(values)[max(0, whole_ceil(share * len(values)) - 1)])
