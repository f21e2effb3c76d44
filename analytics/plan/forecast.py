"""Demand in the weeks to come: a model with trend and season where it has proved better than last week again, and how it proved so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from analytics.plan.demand_series import DemandSeries

Method = Literal["ets", "seasonal_naive"]
SEASON_DAYS = 7
NAIVE_MIN_DAYS = 2 * SEASON_DAYS
"""Two seasons: with less, not even what changes from week to week is known."""
MODEL_MIN_DAYS = 4 * SEASON_DAYS
TEST_DAYS = 4 * SEASON_DAYS
"""How far ahead a forecast is tested."""
LEVELS = (50, 80, 95)
"""Percent of the days that shall lie within each band of a fan."""
BAND = 80
"""The band that dates are said of."""

Days = NDArray[np.float64]


@dataclass(frozen=True)
class Fan:
    """GPUs on each day to come: the middle, and by level in percent the lower and upper edge of the band, never below 0."""

    method: Method
    middle: tuple[float, ...]
    low: Mapping[int, tuple[float, ...]]
    high: Mapping[int, tuple[float, ...]]


@dataclass(frozen=True)
class ForecastTest:
    """Forecasts as they would have been made at the end of each earlier week, against the days since: all out of sample.

    `errors` are the mean absolute errors in GPUs over the same `days`, up to four weeks ahead from each of `origins` weeks. `inside` is
    the share of these days within each band of the method that is used.
    """

    origins: int
    days: int
    errors: Mapping[Method, float]
    inside: Mapping[int, float]

    @property
    def method(self) -> Method:
        """The one to use: the model where it was nearer than last week again."""
        return _better(self.errors)

    @property
    def relative_error(self) -> float | None:
        """The model's error over that of last week again; None where that had none."""
        naive = self.errors["seasonal_naive"]
        return self.errors["ets"] / naive if naive else None


@dataclass(frozen=True)
class DemandForecast:
    """What is to come of a series; `fan` is None below two weeks of known days, `test` where no week could be tested.

    `more_from` is the day from which on there is more, if every day is observed: a fan at all, or the model; None where there is all.
    """

    series: DemandSeries
    fan: Fan | None
    test: ForecastTest | None
    more_from: date | None


def forecast(series: DemandSeries, horizon_days: int) -> DemandForecast:
    """The forecast of the days after the series."""
    wanted = next((least for least in (NAIVE_MIN_DAYS, MODEL_MIN_DAYS) if series.known_days < least), None)
    more_from = None if wanted is None else series.next_day + timedelta(wanted - series.known_days)
    if series.known_days < NAIVE_MIN_DAYS:
        return DemandForecast(series, None, None, more_from)
    values = np.array([np.nan if each is None else each for each in series.gpus])
    test = rolling_test(values) if series.known_days >= MODEL_MIN_DAYS else None
    method = "seasonal_naive" if test is None else test.method
    return DemandForecast(series, predicted(method, values, horizon_days), test, more_from)


def rolling_test(values: Days) -> ForecastTest | None:
    """Tests both methods from every week's end before the last that has two weeks of known days before it; None without any.

    `values` are GPUs by day, NaN where unknown; unknown days are not scored.
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
    """The fan after a series, of which two weeks have to be known.

    `ets` is exponential smoothing with an additive week and a steady trend or none, by the corrected Akaike criterion (Hyndman et
    al. 2008, doi:10.1007/978-3-540-71918-2), with the bands of that model. `seasonal_naive` is last week again, its bands from the
    errors of one week ahead, wider with every week (Hyndman & Athanasopoulos, Forecasting: Principles and Practice, 5.5).
    """
    # of a series without a trend some of the models that are tried divide by zero, and are not taken
    with np.errstate(divide="ignore", invalid="ignore"):
        found = _MODELS[method]().forecast(filled(values), horizon_days, level=list(LEVELS))
    return Fan(
        method,
        _gpus(found["mean"]),
        {level: _gpus(found[f"lo-{level}"]) for level in LEVELS},
        {level: _gpus(found[f"hi-{level}"]) for level in LEVELS},
    )


def filled(values: Days) -> Days:
    """From the first known day on, unknown days as a week before, in the first week as the day before: only to fit models on."""
    found = values[int(np.flatnonzero(np.isfinite(values))[0]) :].copy()
    for at in np.flatnonzero(np.isnan(found)):
        found[at] = found[at - SEASON_DAYS] if at >= SEASON_DAYS else found[at - 1]
    return found


def _ets() -> Any:
    from statsforecast.models import AutoETS  # takes a second, which only a forecast is worth

    return AutoETS(season_length=SEASON_DAYS, model="AZA", damped=False)


def _seasonal_naive() -> Any:
    from statsforecast.models import SeasonalNaive

    return SeasonalNaive(season_length=SEASON_DAYS)


_MODELS: Mapping[Method, Callable[[], Any]] = {"ets": _ets, "seasonal_naive": _seasonal_naive}


def _better(errors: Mapping[Method, float]) -> Method:
    return "ets" if errors["ets"] < errors["seasonal_naive"] else "seasonal_naive"


def _joined(days: list[Days], known: list[NDArray[np.bool_]]) -> Days:
    """The known days of all origins in one row."""
    return np.concatenate([each[own] for each, own in zip(days, known, strict=True)])


def _gpus(values: Any) -> tuple[float, ...]:
    return tuple(round(max(0.0, float(each)), 2) for each in values)
