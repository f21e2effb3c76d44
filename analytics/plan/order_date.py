"""When a pool is full, and until when new GPUs have to be ordered so that they are there by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from analytics.plan.demand_series import DemandSeries, is_full
from analytics.plan.forecast import BAND, DemandForecast, Fan, forecast
from analytics.scope import Scope
from fallow.clock import DAY_MS
from fallow.config import Config

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
