"""Next week's peak demand of each pool: a lower edge, a point and an upper edge.

The point is the mean of the last four weeks' peaks, where each week counts twice as much as the week before it. The
edges follow from
the errors of earlier forecasts: from the pool's own errors if it has many weeks, from the fleet's if it has few.

The method is conformal prediction with weights (Vovk et al. 2005; Barber et al. 2023, doi:10.1214/23-AOS2276) over
rolling origins. An error is divided by the pool's typical error, so that stable pools do not pay for volatile pools.
`python -m benchmarks next-week` measures the method.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.peak_demand import SEEN_MIN, UNKNOWN_MAX
from analytics.proportions import whole_ceil
from fallow.clock import DAY_MS, HOUR_MS, floor_ms

Floats = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

LEVEL = 0.91
"""Nominal share of weeks inside the interval: above the promised 90 %, as the typical miss is itself an estimate."""
HISTORY_DAYS = 182
HISTORY_MIN_DAYS = 14
"""Days of data that at least one pool needs: a week to forecast from, and a week to compare with the forecast."""
WEEK_WEIGHTS = (1.0, 0.5, 0.25, 0.125)
"""Weights of the last four weeks' peaks, the newest first."""
HALF_LIFE_WEEKS = 4.0
"""Age at which a miss counts half."""
POOL_WEEKS = 6.0
"""The fleet's typical miss counts as much as this number of a pool's own weeks."""
SHAPE_WEEKS = 16.0
"""A Laplace distribution counts as much as this number of weeks of misses in the shape that all pools share."""
FLEET_MISS, FLEET_WEEKS = 0.3, 2.0
"""The typical miss over the pool's spread before any week is known, and its weight in weeks; from simulated fleets."""
MISS_MIN_GPUS = 0.3
SPREAD_PER_ROOT_GPU = 0.4
SPREAD_DAYS = 28
_DAY_HOURS, _WEEK_HOURS, _WEEK_DAYS = 24, 168, 7
_SHARES = (np.arange(199) + 0.5) / 199
_LAPLACE: Floats = np.where(_SHARES < 0.5, np.log(2 * _SHARES), -np.log(2 * (1 - _SHARES)))
"""Quantiles of a Laplace distribution whose mean absolute value is 1."""


@dataclass(frozen=True)
class PoolHours:
    """Hourly demand of a pool."""

    hours: pl.DataFrame
    """`time` (start of the hour, ms), `demand` and `unknown` (most GPUs at once). An absent hour is unknown."""
    gpus: float
    quantile: float
    """Share of a week's hours that the peak demand covers."""
    capacity: float | None
    """GPUs that demand cannot exceed. None where demand includes queued jobs."""


@dataclass(frozen=True)
class WeekAhead:
    """Peak demand in GPUs of the next 7 days: 0 <= low <= point <= high <= capacity. Whole if demand always was."""

    low: float
    point: float
    high: float
    weeks: int
    """Weeks of the pool's own data that its forecasts were compared with."""


@dataclass(frozen=True)
class _Track:
    """A pool's forecast at a moment, and the errors of its forecasts at the ends of earlier days, the newest first."""

    forecast: float
    spread: float
    misses: Floats
    """Peak of the following week minus its forecast."""
    spreads: Floats
    days_back: NDArray[np.int64]
    is_whole: bool

    @property
    def weights(self) -> Floats:
        """Return the weights in weeks, lower with age. A day counts a seventh: weeks of consecutive days overlap."""
        weights: Floats = 0.5 ** ((self.days_back - _WEEK_DAYS) / _WEEK_DAYS / HALF_LIFE_WEEKS) / _WEEK_DAYS
        return weights

    @property
    def ratios(self) -> Floats:
        """Return the absolute errors divided by the spread of their time."""
        ratios: Floats = np.abs(self.misses) / self.spreads
        return ratios


def weeks_ahead(pools: Mapping[Key, PoolHours], until_ms: int) -> dict[Key, WeekAhead | None]:
    """Return the peak demand of the seven days after a moment. Hours after the moment are ignored.

    None for a pool without an observed week in the last four weeks, and for all pools if none has two consecutive
    observed weeks. With few weeks the fleet's errors stand in for the pool's own; with hardly any, a Laplace
    distribution.
    """
    tracks = {key: _track(pool, until_ms) for key, pool in pools.items()}
    fleet = [track for track in tracks.values() if len(track.misses)]
    if not fleet:
        return dict.fromkeys(pools)
    weeks = sum(float(track.weights.sum()) for track in fleet)
    missed = sum(float(track.weights @ track.ratios) for track in fleet)
    typical = (missed + FLEET_WEEKS * FLEET_MISS) / (weeks + FLEET_WEEKS)
    scaled = [_scaled_misses(track, typical) for track in fleet]
    weights = [track.weights for track in fleet] + [np.full(len(_LAPLACE), SHAPE_WEEKS / len(_LAPLACE))]
    shape = _weighted_quantiles(np.concatenate([*scaled, _LAPLACE]), np.concatenate(weights))
    return {key: _week_ahead(pools[key], track, typical, shape) for key, track in tracks.items()}


def peak_demand(demand: Floats, quantile: float) -> float:
    """Return the lowest demand that covers this share of the known hours. NaN with fewer than SEEN_MIN known hours."""
    return float(_peaks(demand, len(demand), quantile)[0])


def _week_ahead(pool: PoolHours, track: _Track, typical: float, shape: Floats) -> WeekAhead | None:
    if math.isnan(track.forecast):
        return None
    miss = track.spread * _blended(track.weights @ track.ratios, track.weights.sum(), typical)
    most = math.inf if pool.capacity is None else pool.capacity - pool.capacity % 1 * track.is_whole
    low, point, high = np.clip(track.forecast + shape * np.maximum(MISS_MIN_GPUS, miss), 0.0, most)
    if track.is_whole:
        # the whole numbers inside: demand is one of them, so that the narrower interval holds as often
        point = float(round(point))
        low, high = min(point, whole_ceil(low)), max(point, math.floor(round(high, 6)))
    return WeekAhead(float(low), float(point), float(high), len(track.misses) // _WEEK_DAYS)


def _blended(missed: Floats, weeks: Floats, typical: float) -> Floats:
    """Return a pool's typical error divided by its spread, from its own weeks and the fleet's value."""
    typical_miss: Floats = (missed + POOL_WEEKS * typical) / (weeks + POOL_WEEKS)
    return typical_miss


def _scaled_misses(track: _Track, typical: float) -> Floats:
    """Return the errors divided by the pool's typical error in the weeks that do not overlap with the error's."""
    apart = np.abs(track.days_back[:, None] - track.days_back[None, :]) >= _WEEK_DAYS
    miss = track.spreads * _blended(apart @ (track.weights * track.ratios), apart @ track.weights, typical)
    scaled: Floats = track.misses / np.maximum(MISS_MIN_GPUS, miss)
    return scaled


def _weighted_quantiles(values: Floats, weights: Floats) -> Floats:
    """Return the lower edge, the median and the upper edge."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    shares = np.array([(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    quantiles: Floats = values[order][np.minimum(np.searchsorted(reached, shares * reached[-1]), len(values) - 1)]
    return quantiles


def _track(pool: PoolHours, until_ms: int) -> _Track:
    demand = _hours_back(pool, floor_ms(until_ms, HOUR_MS))
    weeks, days = (_peaks(demand, hours, pool.quantile) for hours in (_WEEK_HOURS, _DAY_HOURS))
    forecasts, spreads = _forecasts(weeks), _spreads(days, pool.gpus)[: len(weeks)]
    missed = weeks[:-_WEEK_DAYS] - forecasts[_WEEK_DAYS:]
    known = np.flatnonzero(np.isfinite(missed))
    then = known + _WEEK_DAYS
    seen = demand[np.isfinite(demand)]
    return _Track(
        float(forecasts[0]), float(spreads[0]), missed[known], spreads[then], then, bool(np.all(seen % 1 == 0))
    )


def _hours_back(pool: PoolHours, until_ms: int) -> Floats:
    """Return the demand of each hour, the last first; whole days, at least a week. NaN if not observed enough."""
    since_ms = until_ms - HISTORY_DAYS * DAY_MS
    rows = pool.hours.filter(
        pl.col("time").is_between(since_ms, until_ms, closed="left"), pl.col("unknown") <= UNKNOWN_MAX * pool.gpus
    )
    back = ((until_ms - rows["time"]) // HOUR_MS - 1).to_numpy()
    days = max(_WEEK_DAYS, 1 + int(back.max(initial=0)) // _DAY_HOURS)
    demand = np.full(days * _DAY_HOURS, np.nan)
    demand[back] = rows["demand"].to_numpy()
    return demand


def _peaks(demand: Floats, hours: int, quantile: float) -> Floats:
    """Return the peak demand of each window of this many hours, a window per day."""
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(demand, hours)[::_DAY_HOURS], axis=1)
    known = np.isfinite(windows).sum(axis=1)
    places = np.maximum(0, np.ceil(np.round(quantile * known, 6)).astype(np.int64) - 1)
    peaks: Floats = np.where(known >= SEEN_MIN * hours, windows[np.arange(len(windows)), places], np.nan)
    return peaks


def _forecasts(weeks: Floats) -> Floats:
    """Return the forecast at each day's end: the weighted mean of the known peaks of the four weeks before."""
    padded = np.append(weeks, np.full(_WEEK_DAYS * (len(WEEK_WEIGHTS) - 1), np.nan))
    peaks = np.stack([padded[_WEEK_DAYS * back :][: len(weeks)] for back in range(len(WEEK_WEIGHTS))])
    weights = np.where(np.isfinite(peaks), np.array(WEEK_WEIGHTS)[:, None], 0.0)
    total, unknown = weights.sum(axis=0), np.full(len(weeks), np.nan)
    forecasts: Floats = np.divide((weights * np.nan_to_num(peaks)).sum(axis=0), total, out=unknown, where=total > 0)
    return forecasts


def _spreads(days: Floats, gpus: float) -> Floats:
    """Return the standard deviation of the daily peaks before each day, raised by a share of the root of the GPUs."""
    padded = np.append(days, np.full(SPREAD_DAYS - 1, np.nan))
    windows = np.lib.stride_tricks.sliding_window_view(padded, SPREAD_DAYS)
    known = np.isfinite(windows)
    number = np.maximum(1, known.sum(axis=1))
    mean = np.where(known, windows, 0.0).sum(axis=1) / number
    variance = np.where(known, (windows - mean[:, None]) ** 2, 0.0).sum(axis=1) / number
    spreads: Floats = SPREAD_PER_ROOT_GPU * math.sqrt(max(1.0, gpus)) + np.sqrt(variance)
    return spreads
