"""Forecasts of a daily series, with bands and a back-test: exponential smoothing, or a repeat of the last week."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Method = Literal["ets", "seasonal_naive"]
SEASON_DAYS = 7
NAIVE_MIN_DAYS = 2 * SEASON_DAYS
"""Two seasons. With less data, even the change from week to week is unknown."""
MODEL_MIN_DAYS = 4 * SEASON_DAYS
TEST_DAYS = 4 * SEASON_DAYS
"""How far ahead a forecast is tested."""
LEVELS = (50, 80, 95)
"""Percent of the days that should lie within each band of a fan."""
BAND = 80
"""The band that dates refer to."""

Days = NDArray[np.float64]
Known = NDArray[np.bool_]


@dataclass(frozen=True)
class Fan:
    """GPUs on each future day: the middle, and by level in percent the edges of the band, never below 0."""

    method: Method
    middle: tuple[float, ...]
    low: Mapping[int, tuple[float, ...]]
    high: Mapping[int, tuple[float, ...]]


@dataclass(frozen=True)
class ForecastTest:
    """Forecasts as of the end of each earlier week, compared with the days since: all out of sample."""

    origins: int
    """Weeks from whose end a forecast was made."""
    days: int
    errors: Mapping[Method, float]
    """Mean absolute errors in GPUs over the same `days`, up to four weeks ahead, by method."""
    inside: Mapping[int, float]
    """Share of these days within each band of the chosen method."""

    @property
    def method(self) -> Method:
        """Return the method to use: the model if its error is smaller than that of repeating the last week."""
        return _better(self.errors)

    @property
    def relative_error(self) -> float | None:
        """Return the model's error divided by the error of repeating the last week; None if the latter is 0."""
        naive = self.errors["seasonal_naive"]
        return self.errors["ets"] / naive if naive else None


def rolling_test(values: Days) -> ForecastTest | None:
    """Return the test of both methods from the end of each earlier week; None without a week to test.

    `values` are GPUs by day, NaN if unknown. A week's end needs two weeks of known days before it. Unknown days are not
    scored.
    """
    origins = [
        origin
        for origin in range(len(values) - SEASON_DAYS, 0, -SEASON_DAYS)
        if np.isfinite(values[:origin]).sum() >= NAIVE_MIN_DAYS
    ]
    real = [values[origin : origin + TEST_DAYS] for origin in origins]
    known = [np.isfinite(each) for each in real]
    if not any(each.any() for each in known):
        return None
    fans = {
        method: [predicted(method, values[:at], len(days)) for at, days in zip(origins, real, strict=True)]
        for method in _MODELS
    }
    then = _joined(real, known)
    errors = {
        method: float(np.mean(np.abs(_joined([np.array(fan.middle) for fan in own], known) - then)))
        for method, own in fans.items()
    }
    best = fans[_better(errors)]
    low, high = (
        {level: _joined([np.array(getattr(fan, edge)[level]) for fan in best], known) for level in LEVELS}
        for edge in ("low", "high")
    )
    inside = {level: float(np.mean((low[level] <= then) & (then <= high[level]))) for level in LEVELS}
    return ForecastTest(len(origins), len(then), errors, inside)


def predicted(method: Method, values: Days, horizon_days: int) -> Fan:
    """Return the fan after a series with two known weeks.

    `ets` is exponential smoothing with an additive week, with or without a steady trend. `seasonal_naive` repeats the
    last week.
    """
    known = np.isfinite(values[int(np.flatnonzero(np.isfinite(values))[0]) :])
    mean, deviation = _MODELS[method](filled(values), known, horizon_days)
    width = {level: NormalDist().inv_cdf(0.5 + level / 200) * deviation for level in LEVELS}
    return Fan(
        method,
        _gpus(mean),
        {level: _gpus(mean - width[level]) for level in LEVELS},
        {level: _gpus(mean + width[level]) for level in LEVELS},
    )


def filled(values: Days) -> Days:
    """Return the values from the first known day.

    Unknown days get the value a week before, in the first week the day before: only to fit models.
    """
    found = values[int(np.flatnonzero(np.isfinite(values))[0]) :].copy()
    for at in np.flatnonzero(np.isnan(found)):
        found[at] = found[at - SEASON_DAYS] if at >= SEASON_DAYS else found[at - 1]
    return found


def _last_week_again(values: Days, known: Known, horizon_days: int) -> tuple[Days, Days]:
    """Return the repeated last week and its standard deviation, which grows with the root of the weeks ahead.

    Only `known` days give an error, each against the last known day of the same weekday. Hyndman & Athanasopoulos,
    Forecasting: Principles and Practice, 5.5.
    """
    ahead = np.arange(horizon_days)
    error = np.sqrt(np.mean((values[SEASON_DAYS:] - values[:-SEASON_DAYS])[known[SEASON_DAYS:]] ** 2))
    return values[-SEASON_DAYS:][ahead % SEASON_DAYS], error * np.sqrt(ahead // SEASON_DAYS + 1)


_LEVEL_WEIGHTS = (0.01, 0.1, 0.2, 0.35, 0.5, 0.7, 0.95)
_TREND_WEIGHTS = (0.0, 0.05, 0.2)
"""Shares of the level's weight."""
_WEEK_WEIGHTS = (0.0, 0.1, 0.3)
"""Shares of what the level's weight leaves of 1."""


def _smoothed(values: Days, known: Known, horizon_days: int) -> tuple[Days, Days]:
    """Return the mean and standard deviation of ETS(A,N,A) or ETS(A,A,A), by the lower corrected Akaike criterion.

    Hyndman, Koehler, Ord & Snyder 2008, doi:10.1007/978-3-540-71918-2.
    """
    _, mean, deviation = min(
        (_fitted(values, known, horizon_days, has_trend=each) for each in (False, True)), key=lambda found: found[0]
    )
    return mean, deviation


def _fitted(values: Days, known: Known, horizon_days: int, *, has_trend: bool) -> tuple[float, Days, Days]:
    """Return the criterion, the mean and the standard deviation of the best combination of weights.

    Errors are linear in the first day's level, trend and week. So the recursion runs once for the values and once for
    each of these, side by side in the last axis, and least squares finds the best of them for every combination.
    """
    weights = [
        (level, trend * level, week * (1 - level))
        for level, trend, week in product(_LEVEL_WEIGHTS, _TREND_WEIGHTS if has_trend else (0.0,), _WEEK_WEIGHTS)
    ]
    by_level, by_trend, by_week = np.array(weights).T[:, :, None]
    count = 1 + has_trend + SEASON_DAYS - 1
    value, *unit = np.eye(1 + count)
    shape = len(weights), 1 + count
    level, trend = np.tile(unit[0], (shape[0], 1)), np.tile(unit[1] if has_trend else 0 * value, (shape[0], 1))
    own = unit[1 + has_trend :]
    week = np.array([np.tile(each, (shape[0], 1)) for each in (*own, -np.sum(own, axis=0))])  # they add up to 0
    errors = np.empty((len(values), *shape))
    for day, gpus in enumerate(values):
        level += trend
        # a day that is not known teaches nothing
        error = errors[day] = known[day] * (gpus * value - level - week[day % SEASON_DAYS])
        level += by_level * error
        trend += by_trend * error
        week[day % SEASON_DAYS] += by_week * error

    real, per_state = errors[:, :, 0].T, errors[:, :, 1:].transpose(1, 0, 2)
    turned = per_state.transpose(0, 2, 1)
    # a weekday that was never known is like the others
    first = -np.linalg.solve(turned @ per_state + _LEAST_SQUARES * np.eye(count), turned @ real[:, :, None])
    squares = np.sum((real + (per_state @ first)[:, :, 0]) ** 2, axis=1)
    best = int(np.argmin(squares))
    parts = np.array([1.0, *first[best, :, 0]])
    free = 2 + has_trend + count + 1  # weights of level, week and trend, first states, variance
    spare = int(known.sum()) - free - 1
    criterion = known.sum() * np.log(max(squares[best], _LEAST_SQUARES)) + 2 * free * (1 + (free + 1) / spare)

    ahead = np.arange(1, horizon_days + 1)
    mean = (
        level[best] @ parts
        + ahead * (trend[best] @ parts)
        + (week[:, best] @ parts)[(len(values) + ahead - 1) % SEASON_DAYS]
    )
    passed_on = by_level[best] + by_trend[best] * ahead + by_week[best] * (ahead % SEASON_DAYS == 0)
    growth = 1 + np.concatenate([[0.0], np.cumsum(passed_on**2)[:-1]])
    return criterion, mean, np.sqrt(squares[best] / spare * growth)


_MODELS: Mapping[Method, Callable[[Days, Known, int], tuple[Days, Days]]] = {
    "ets": _smoothed,
    "seasonal_naive": _last_week_again,
}
_LEAST_SQUARES = 1e-9
"""Arithmetic error that counts as 0."""


def _better(errors: Mapping[Method, float]) -> Method:
    return "ets" if errors["ets"] < errors["seasonal_naive"] else "seasonal_naive"


def _joined(days: list[Days], known: list[Known]) -> Days:
    """Return the known days of all origins in one row."""
    return np.concatenate([each[own] for each, own in zip(days, known, strict=True)])


def _gpus(values: Days) -> tuple[float, ...]:
    return tuple(round(max(0.0, float(each)), 2) for each in values)
