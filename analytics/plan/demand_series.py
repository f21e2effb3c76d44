"""What each pool needed day by day: the series that forecasts are made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta, tzinfo

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.states import ALLOCATED
from analytics.workloads.ledger_rows import whole_number
from analytics.workloads.model import Context
from analytics.workloads.pool_need import PoolNeed, in_pools, pool_needs
from analytics.workloads.reclaimable import reclaimable
from analytics.workloads.surplus import BACKTEST_SEEN_MIN, UNKNOWN_MAX, quantile_of
from fallow.clock import HOUR_MS, WEEK_MS, floor_ms, from_ms

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
    local = pl.from_epoch("time", "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(str(zone))
    known = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * need.count).with_columns(day=local.dt.date())
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
