"""Daily demand of each pool, its forecast, and the last day to order new GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo

import numpy as np
import polars as pl

from analytics.capacity.forecast_models import (
    BAND,
    MODEL_MIN_DAYS,
    NAIVE_MIN_DAYS,
    Fan,
    ForecastTest,
    predicted,
    rolling_test,
)
from analytics.capacity.peak_demand import SEEN_MIN, UNKNOWN_MAX, quantile_of
from analytics.frames import local_time
from analytics.proportions import Estimate, whole_ceil
from fallow.clock import DAY_MS, from_ms
from fallow.config import Config

_KNOWN_HOURS_MIN = SEEN_MIN * 24
HORIZON_DAYS = 13 * 7


@dataclass(frozen=True)
class DemandSeries:
    """Daily demand for the GPUs of a model in a pool.

    Attributes:
        gpus: for each day from `first_day`, the GPUs that were enough in 95 % of its hours (99 % in production). An
            hour counts with its
            highest demand. None if less than 90 % of the hours were observed.
        there: the GPUs of the pool on each of these days; None on the same days.
        capacity: GPUs in working order at the end.
    """

    pool: str
    model: str
    first_day: date
    gpus: tuple[float | None, ...]
    there: tuple[float | None, ...]
    capacity: float

    @property
    def next_day(self) -> date:
        return self.day(len(self.gpus))

    @property
    def known_days(self) -> int:
        return sum(gpus is not None for gpus in self.gpus)

    @property
    def full_days(self) -> int:
        """Return the number of days on which demand took every GPU of the pool."""
        days = zip(self.gpus, self.there, strict=True)
        return sum(gpus is not None and there is not None and is_full(gpus, there) for gpus, there in days)

    @property
    def is_full_now(self) -> bool:
        """Return whether demand took every GPU on the newest known day."""
        known = [gpus for gpus in self.gpus if gpus is not None]
        return bool(known) and is_full(known[-1], self.capacity)

    @property
    def latest(self) -> tuple[float, float] | None:
        """Return the highest demand of the last seven days, and the GPUs of that day; None if no day is known."""
        days = zip(self.gpus[-7:], self.there[-7:], strict=True)
        return max(((gpus, there) for gpus, there in days if gpus is not None and there is not None), default=None)

    def day(self, place: int) -> date:
        """Return the day at an index of `gpus`, or after them."""
        return self.first_day + timedelta(place)


_FULL_WITHIN = 0.5
"""GPUs. A smaller difference counts as none."""


def is_full(gpus: float, capacity: float) -> bool:
    """Return whether less than half a GPU is left."""
    return gpus > capacity - _FULL_WITHIN


def demand_series(
    key: tuple[str, str], hours: pl.DataFrame, capacity: float, until_ms: int, zone: tzinfo
) -> DemandSeries:
    """Return the series of a pool's whole days.

    `hours` has `time`, `there`, `demand` and `unknown` by hour, in GPUs; `capacity` is that of the end.
    """
    known = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * pl.col("there")).with_columns(
        day=local_time("time", str(zone)).dt.date()
    )
    most = pl.col("demand").quantile(quantile_of(key[0]), "higher")
    days = known.group_by("day").agg(gpus=most, there=pl.col("there").max(), hours=pl.len())
    end = from_ms(until_ms).astimezone(zone).date()
    seen = days.filter(pl.col("hours") >= _KNOWN_HOURS_MIN, pl.col("day") < end)
    own = {day: (gpus, there) for day, gpus, there in seen.select("day", "gpus", "there").iter_rows()}
    first = min(own, default=end)
    values = [own.get(first + timedelta(place), (None, None)) for place in range((end - first).days)]
    gpus, there = zip(*values, strict=True) if values else ((), ())
    return DemandSeries(*key, first, gpus, there, capacity)


@dataclass(frozen=True)
class DemandForecast:
    series: DemandSeries
    fan: Fan | None
    """None with less than two weeks of known days."""
    test: ForecastTest | None
    """None if no week could be tested."""
    more_from: date | None
    """First day of a fuller forecast (a first fan, or the model) if all days are observed; None for the fullest."""


def forecast(series: DemandSeries, horizon_days: int) -> DemandForecast:
    """Return the forecast of the days after the series."""
    wanted = next((least for least in (NAIVE_MIN_DAYS, MODEL_MIN_DAYS) if series.known_days < least), None)
    more_from = None if wanted is None else series.next_day + timedelta(wanted - series.known_days)
    if series.known_days < NAIVE_MIN_DAYS:
        return DemandForecast(series, None, None, more_from)
    values = np.array([np.nan if each is None else each for each in series.gpus])
    test = rolling_test(values) if series.known_days >= MODEL_MIN_DAYS else None
    method = "seasonal_naive" if test is None else test.method
    return DemandForecast(series, predicted(method, values, horizon_days), test, more_from)


@dataclass(frozen=True)
class Crossing:
    """The first day on which demand takes every GPU, by the upper edge of the 80 % band, the middle and the lower edge.

    None: not within the horizon.
    """

    earliest: date | None
    likely: date | None
    latest: date | None


@dataclass(frozen=True)
class PoolOutlook:
    """The forecast of a pool and model, the day on which it is full, and the last day to order."""

    forecast: DemandForecast
    horizon_days: int
    lead_days: int
    full: Crossing | None
    """None without a forecast."""

    @property
    def series(self) -> DemandSeries:
        return self.forecast.series

    @property
    def horizon_end(self) -> date:
        return self.series.next_day + timedelta(self.horizon_days - 1)

    @property
    def peak(self) -> float | None:
        """Return the likely demand of the busiest day of the forecast; None without a forecast."""
        return None if self.forecast.fan is None else max(self.forecast.fan.middle)

    def beyond(self, gpus: float) -> Estimate | None:
        """Return the whole GPUs by which the busiest day exceeds a number, with the band; None without a forecast."""
        fan = self.forecast.fan
        if fan is None:
            return None
        edges = (max(days) - gpus for days in (fan.low[BAND], fan.middle, fan.high[BAND]))
        # less than half a GPU is none, as where a pool is full
        return Estimate(*(float(whole_ceil(edge)) if edge >= _FULL_WITHIN else 0.0 for edge in edges))

    def order_by(self, day: date) -> date:
        """Return the last day to order GPUs that are needed on a day."""
        return day - timedelta(self.lead_days)

    def days_late(self, day: date) -> int:
        """Return the days between that last day and the end of the data; 0 if it is still to come."""
        return max(0, (self.series.next_day - self.order_by(day)).days)


def lead_days(settings: Config) -> int:
    """Return the days from order to use, by the settings; a part of a day counts as a day."""
    return -(-settings.integer("plan.lead_time") // DAY_MS)


def outlook(series: DemandSeries, horizon_days: int, lead_days: int) -> PoolOutlook:
    """Return the outlook of a series over a horizon. `lead_days` are the days from order to use."""
    found = forecast(series, horizon_days)
    return PoolOutlook(found, horizon_days, lead_days, None if found.fan is None else crossing(found.fan, series))


def crossing(fan: Fan, series: DemandSeries) -> Crossing:
    """Return the days on which demand takes every GPU that is in working order now."""

    def first(gpus: Sequence[float]) -> date | None:
        full = (ahead for ahead, each in enumerate(gpus) if is_full(each, series.capacity))
        return next((series.day(len(series.gpus) + ahead) for ahead in full), None)

    return Crossing(first(fan.high[BAND]), first(fan.middle), first(fan.low[BAND]))
