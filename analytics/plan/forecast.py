"""What each pool needed day by day, its demand in the weeks to come, and until when new GPUs have to be ordered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from itertools import product
from statistics import NormalDist
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.demand import hourly_most
from analytics.frames import local_time
from analytics.scope import Scope
from analytics.states import ALLOCATED
from analytics.workloads.ledger_rows import whole_number
from analytics.workloads.model import Context
from analytics.workloads.pool_need import PoolNeed, in_pools, pool_needs
from analytics.workloads.reclaimable import reclaimable
from analytics.workloads.surplus import BACKTEST_SEEN_MIN, UNKNOWN_MAX, quantile_of
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS, floor_ms, from_ms
from fallow.config import Config

HISTORY_MS = 16 * WEEK_MS
_KNOWN_HOURS_MIN = BACKTEST_SEEN_MIN * 24
_KEY = ("pool", "model")
_COUNTED = {"allocated": ALLOCATED, "unknown": ("unknown",)}


@dataclass(frozen=True)
class DemandSeries:
    """GPUs of one model in one pool that were allocated or in use, and how many there are.

    `gpus` has for each day from `first_day` on what sufficed in all hours but the busiest twentieth (hundredth, in production), each
    hour counting with its most at once; None where less than 90 % of the day's hours were observed. `capacity` are the GPUs in order
    at the end. `idle_given` of them somebody has though they are safe to give back; None where the need is not known.
    """

    pool: str
    model: str
    first_day: date
    gpus: tuple[float | None, ...]
    capacity: float
    idle_given: int | None

    @property
    def next_day(self) -> date:
        """The day after the last one of the series."""
        return self.day(len(self.gpus))

    @property
    def known_days(self) -> int:
        return sum(each is not None for each in self.gpus)

    @property
    def full_days(self) -> int:
        """On how many days no GPU was left: what waited for one then is not in the series."""
        return sum(each is not None and is_full(each, self.capacity) for each in self.gpus)

    @property
    def is_full_now(self) -> bool:
        """Whether no GPU was left on the newest day that is known."""
        known = [each for each in self.gpus if each is not None]
        return bool(known) and is_full(known[-1], self.capacity)

    @property
    def latest(self) -> float | None:
        """The most of the last seven days; None where none of them is known."""
        return max((each for each in self.gpus[-7:] if each is not None), default=None)

    def day(self, place: int) -> date:
        """The day at a place of `gpus`, or after them."""
        return self.first_day + timedelta(place)


def is_full(gpus: float, capacity: float) -> bool:
    """Whether less than half a GPU is left."""
    return gpus > capacity - 0.5


def demand_series(context: Context, zone: tzinfo) -> tuple[DemandSeries, ...]:
    """The series of each pool and model that has GPUs at the end of the window, by name; up to 16 weeks of whole days.

    Args:
        context: what was known at the end of the window.
        zone: whose days they are.
    """
    needs = pool_needs(context)
    if not needs:
        return ()
    hours = _hours(context)
    end = from_ms(context.until_ms).astimezone(zone).date()
    safe = {(each.pool, each.model): each.safe_gpus for each in reclaimable(context).pools if each.safe is not None}
    return tuple(
        _series(needs[of], _days(needs[of], hours.filter(pool=of[0], model=of[1]), zone), end, safe.get(of))
        for of in sorted(needs)
    )


def _hours(context: Context) -> pl.DataFrame:
    """Per pool, model and whole hour since its first GPU was seen, the most GPUs at once: `allocated` and `unknown`.

    A GPU counts where it was seen last, as everywhere in what a pool needs.
    """
    first_ms = whole_number(context.whole.stretches, pl.col("time").min())
    since_ms = max(first_ms, context.until_ms - HISTORY_MS)
    rows = context.whole.stretches.filter((pl.col("end") > since_ms) & (pl.col("gpu_share") > 0))
    rows = rows.join(in_pools(context, rows.select("gpu").unique()), on="gpu")
    there = rows.group_by(_KEY).agg(first=pl.col("time").min())
    last_ms = floor_ms(context.until_ms, HOUR_MS)
    hours = pl.select(time=pl.int_range(-(-since_ms // HOUR_MS) * HOUR_MS, last_ms, HOUR_MS, dtype=pl.Int64))
    found = there.join(hours, how="cross").filter(pl.col("time") >= pl.col("first")).drop("first")
    for name, states in _COUNTED.items():
        most = hourly_most(rows.filter(pl.col("state").is_in(states)), _KEY, since_ms, context.until_ms)
        found = found.join(most.rename({"most": name}), on=(*_KEY, "time"), how="left")
    return found.with_columns(pl.col(*_COUNTED).fill_null(0.0))


def _days(need: PoolNeed, hours: pl.DataFrame, zone: tzinfo) -> dict[date, float]:
    """What was needed on each day of which enough is known."""
    known = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * need.count).with_columns(
        day=local_time("time", str(zone)).dt.date()
    )
    most = pl.col("allocated").quantile(quantile_of(need.pool), "higher")
    days = known.group_by("day").agg(most=most, hours=pl.len()).filter(pl.col("hours") >= _KNOWN_HOURS_MIN)
    return dict(days.select("day", "most").iter_rows())


def _series(need: PoolNeed, days: dict[date, float], end: date, safe: tuple[str, ...] | None) -> DemandSeries:
    own = {day: gpus for day, gpus in days.items() if day < end}
    first = min(own, default=end)
    given = need.gpus.filter(pl.col("state") != "free")["gpu"]
    return DemandSeries(
        need.pool,
        need.model,
        first,
        tuple(own.get(first + timedelta(place)) for place in range((end - first).days)),
        need.count,
        None if safe is None else len(set(given).intersection(safe)),
    )


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
Known = NDArray[np.bool_]


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
    """Return the fan after a series of which two weeks are known.

    `ets` is exponential smoothing with an additive week, with a steady trend or without one. `seasonal_naive` is last week again.
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
    """From the first known day on, unknown days as a week before, in the first week as the day before: only to fit models on."""
    found = values[int(np.flatnonzero(np.isfinite(values))[0]) :].copy()
    for at in np.flatnonzero(np.isnan(found)):
        found[at] = found[at - SEASON_DAYS] if at >= SEASON_DAYS else found[at - 1]
    return found


def _last_week_again(values: Days, known: Known, horizon_days: int) -> tuple[Days, Days]:
    """Return last week again, and its standard deviation: that of one week ahead, times the root of the weeks ahead.

    Only days that were `known` tell an error, each against the last known one of its weekday.
    Hyndman & Athanasopoulos, Forecasting: Principles and Practice, 5.5.
    """
    ahead = np.arange(horizon_days)
    error = np.sqrt(np.mean((values[SEASON_DAYS:] - values[:-SEASON_DAYS])[known[SEASON_DAYS:]] ** 2))
    return values[-SEASON_DAYS:][ahead % SEASON_DAYS], error * np.sqrt(ahead // SEASON_DAYS + 1)


_LEVEL_WEIGHTS = (0.01, 0.1, 0.2, 0.35, 0.5, 0.7, 0.95)
_TREND_WEIGHTS = (0.0, 0.05, 0.2)
"""As shares of the level's weight."""
_WEEK_WEIGHTS = (0.0, 0.1, 0.3)
"""As shares of what the level's weight leaves of 1."""


def _smoothed(values: Days, known: Known, horizon_days: int) -> tuple[Days, Days]:
    """Return the mean and the standard deviation of ETS(A,N,A) or ETS(A,A,A), whichever has the lower corrected Akaike criterion.

    Hyndman, Koehler, Ord & Snyder 2008, doi:10.1007/978-3-540-71918-2.
    """
    _, mean, deviation = min(
        (_fitted(values, known, horizon_days, has_trend=each) for each in (False, True)), key=lambda found: found[0]
    )
    return mean, deviation


def _fitted(values: Days, known: Known, horizon_days: int, *, has_trend: bool) -> tuple[float, Days, Days]:
    """Return the criterion, the mean and the standard deviation of the best of all combinations of weights.

    Errors are linear in the first day's level, trend and week. So the recursion runs once for the values and once for each of these,
    side by side in the last axis, and least squares finds the best of them for every combination.
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
"""What arithmetic leaves of an error that is 0."""


def _better(errors: Mapping[Method, float]) -> Method:
    return "ets" if errors["ets"] < errors["seasonal_naive"] else "seasonal_naive"


def _joined(days: list[Days], known: list[Known]) -> Days:
    """The known days of all origins in one row."""
    return np.concatenate([each[own] for each, own in zip(days, known, strict=True)])


def _gpus(values: Days) -> tuple[float, ...]:
    return tuple(round(max(0.0, float(each)), 2) for each in values)


HORIZON_DAYS = 13 * 7


@dataclass(frozen=True)
class Crossing:
    """The first day on which all GPUs are given, by the upper edge of the 80 % band, the middle and the lower edge.

    None: not within the horizon.
    """

    earliest: date | None
    likely: date | None
    latest: date | None


@dataclass(frozen=True)
class PoolOutlook:
    """The forecast of a pool and model, the day on which it is full, and what follows.

    `full` is None without a forecast. `full_after_return` is the same once whoever holds the idle GPUs that are safe to give back has
    given them back; None where there are none.
    """

    forecast: DemandForecast
    horizon_days: int
    lead_days: int
    full: Crossing | None
    full_after_return: Crossing | None

    @property
    def series(self) -> DemandSeries:
        return self.forecast.series

    @property
    def horizon_end(self) -> date:
        """The last day of the forecast."""
        return self.series.next_day + timedelta(self.horizon_days - 1)

    def order_by(self, day: date) -> date:
        """Until when to order what has to be there on a day."""
        return day - timedelta(self.lead_days)

    def days_late(self, day: date) -> int:
        """How long before the end of the data that was; 0 where it is still to come."""
        return max(0, (self.series.next_day - self.order_by(day)).days)


def lead_days(settings: Config) -> int:
    """Days from an order to the GPUs, by the settings; a part of a day counts as one."""
    return -(-settings.integer("plan.lead_time") // DAY_MS)


def outlooks(
    series: Sequence[DemandSeries], horizon_days: int, lead_days: int, lead_days_of: Mapping[str, int] | None = None
) -> tuple[PoolOutlook, ...]:
    """Of each series, who is likely to be full first before the others, those without a forecast last.

    Args:
        series: of each pool and model.
        horizon_days: how far ahead.
        lead_days: days from an order to the GPUs.
        lead_days_of: the same of single pools.
    """
    own = lead_days_of or {}
    return tuple(sorted((_outlook(each, horizon_days, own.get(each.pool, lead_days)) for each in series), key=_urgency))


def of_scope(found: Sequence[PoolOutlook], scope: Scope) -> tuple[PoolOutlook, ...]:
    """Those of the pool and the model that are asked for."""
    return tuple(
        each for each in found if scope.pool in (None, each.series.pool) and scope.model in (None, each.series.model)
    )


def _outlook(series: DemandSeries, horizon_days: int, lead_days: int) -> PoolOutlook:
    found = forecast(series, horizon_days)
    if found.fan is None:
        return PoolOutlook(found, horizon_days, lead_days, None, None)
    idle = series.idle_given or 0
    return PoolOutlook(
        found,
        horizon_days,
        lead_days,
        crossing(found.fan, series, 0),
        crossing(found.fan, series, idle) if idle else None,
    )


def crossing(fan: Fan, series: DemandSeries, returned: int) -> Crossing:
    """When a pool is full if so many of its GPUs that are given now come back first."""

    def first(gpus: Sequence[float]) -> date | None:
        return next(
            (
                series.day(len(series.gpus) + ahead)
                for ahead, each in enumerate(gpus)
                if is_full(each - returned, series.capacity)
            ),
            None,
        )

    return Crossing(first(fan.high[BAND]), first(fan.middle), first(fan.low[BAND]))


def _urgency(each: PoolOutlook) -> tuple[bool, date, date, str, str]:
    full = each.full or Crossing(None, None, None)
    by = [date.max if day is None else each.order_by(day) for day in (full.likely, full.earliest)]
    return each.full is None, by[0], by[1], each.series.pool, each.series.model
