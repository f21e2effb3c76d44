"""Next week's peak demand: edges in order, what does not count, how often the interval holds, and who pays for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.capacity.next_week import Floats, PoolHours, WeekAhead, peak_demand, weeks_ahead
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS

UNTIL_MS = 20_777 * DAY_MS
WEEK = 168
Rng = np.random.Generator


def pool_of(demand: Floats, gpus: float = 32, capacity: float | None = 32, unknown: Floats | None = None) -> PoolHours:
    """Return a pool whose last hour ends at UNTIL_MS."""
    time = UNTIL_MS - HOUR_MS * np.arange(len(demand), 0, -1)
    unseen = np.zeros(len(demand)) if unknown is None else unknown
    return PoolHours(pl.DataFrame({"time": time, "demand": demand, "unknown": unseen}), gpus, 0.95, capacity)


def stationary(rng: Rng, hours: int) -> Floats:
    """Jobs of one to four GPUs that come and go."""
    starts = rng.poisson(0.4, hours)
    lengths = np.maximum(1, rng.exponential(9, hours)).astype(int)
    level = np.zeros(hours + 200)
    for hour in np.flatnonzero(starts):
        level[hour : hour + min(200, lengths[hour])] += starts[hour] * rng.integers(1, 5)
    return np.minimum(32.0, level[:hours])


def seasonal(rng: Rng, hours: int) -> Floats:
    """The same, and people who come on weekdays."""
    hour = np.arange(hours)
    people = np.where((hour // 24 % 7 < 5) & (hour % 24 >= 8) & (hour % 24 < 19), rng.binomial(12, 0.6, hours), 0.0)
    return np.minimum(32.0, stationary(rng, hours) / 2 // 1 + people)


def shifting(rng: Rng, hours: int) -> Floats:
    """The same, and a project of 4 to 10 GPUs that begins or ends at some moment."""
    level, at, gpus = stationary(rng, hours) / 2 // 1, rng.integers(0, hours), rng.integers(4, 11)
    begins = rng.random() < 0.5
    return level + np.where((np.arange(hours) >= at) == begins, gpus, 0)


@pytest.mark.parametrize(
    ("series", "widest"), [pytest.param(stationary, 0.5, marks=pytest.mark.long), (seasonal, 0.3), (shifting, 0.4)]
)
def test_nine_in_ten_weeks_are_inside(series: Callable[[Rng, int], Floats], widest: float) -> None:
    rng, held, widths = np.random.default_rng(7), list[bool](), list[float]()
    for _ in range(40):
        demands = [series(rng, 9 * WEEK) for _ in range(4)]
        pools = {number: pool_of(demand) for number, demand in enumerate(demands)}
        for number, week in weeks_ahead(pools, UNTIL_MS - WEEK_MS).items():
            assert week is not None
            held.append(week.low <= peak_demand(demands[number][-WEEK:], 0.95) <= week.high)
            widths.append((week.high - week.low) / 32)
    assert 0.84 <= np.mean(held) <= 0.97
    assert np.mean(widths) <= widest


@given(st.integers(0, 2**32 - 1), st.integers(1, 80))
def test_edges_are_in_order_and_possible(seed: int, days: int) -> None:
    rng = np.random.default_rng(seed)
    is_queued, is_whole = rng.integers(0, 2, 2)
    pools = {}
    for name, gpus in (("a", 7.6), ("b", 32)):
        demand = rng.uniform(0, gpus * (1.5 if is_queued else 1.0), days * 24)
        unknown = np.where(rng.random(days * 24) < rng.choice([0.0, 0.05, 0.5]), gpus, 0.0)
        pools[name] = pool_of(demand // 1 if is_whole else demand, gpus, None if is_queued else gpus, unknown)
    found = weeks_ahead(pools, UNTIL_MS)
    assert found == weeks_ahead(dict(reversed(pools.items())), UNTIL_MS)
    for name, week in found.items():
        if week is not None:
            assert 0 <= week.low <= week.point <= week.high <= (pools[name].capacity or np.inf)
            assert not is_whole or all(edge % 1 == 0 for edge in (week.low, week.point, week.high))


def test_what_was_not_observed_and_what_comes_later_does_not_count() -> None:
    rng = np.random.default_rng(3)
    demand = stationary(rng, 6 * WEEK)
    unknown = np.where(rng.random(len(demand)) < 0.05, 4.0, 0.0)
    plain = pool_of(demand, unknown=unknown)
    absent = replace(plain, hours=plain.hours.filter(pl.col("unknown") == 0))
    wild = replace(
        plain, hours=plain.hours.with_columns(demand=pl.when(pl.col("unknown") > 0).then(0.0).otherwise("demand"))
    )
    assert weeks_ahead({0: plain}, UNTIL_MS) == weeks_ahead({0: absent}, UNTIL_MS) == weeks_ahead({0: wild}, UNTIL_MS)
    earlier = UNTIL_MS - WEEK_MS
    before = replace(plain, hours=plain.hours.filter(pl.col("time") < earlier))
    assert weeks_ahead({0: plain}, earlier) == weeks_ahead({0: before}, earlier)
    known = weeks_ahead({0: pool_of(demand, unknown=np.full(len(demand), 3.2))}, UNTIL_MS)
    assert known == weeks_ahead({0: pool_of(demand)}, UNTIL_MS)  # a tenth of the pool is little enough


def test_without_two_observed_weeks_nothing_is_known() -> None:
    demand = stationary(np.random.default_rng(5), 2 * WEEK)
    assert weeks_ahead({0: pool_of(demand[-2 * WEEK + 24 :])}, UNTIL_MS) == {0: None}
    assert weeks_ahead({0: pool_of(demand)}, UNTIL_MS)[0] is not None
    holes = np.where(np.arange(2 * WEEK) % WEEK < 20, 32.0, 0.0)  # 88 % of each week
    assert weeks_ahead({0: pool_of(demand, unknown=holes)}, UNTIL_MS) == {0: None}
    newcomer = weeks_ahead({"old": pool_of(demand), "new": pool_of(demand[-WEEK:])}, UNTIL_MS)["new"]
    assert newcomer is not None
    assert newcomer.weeks == 0
    assert newcomer.low < newcomer.point < newcomer.high
    assert weeks_ahead({"old": pool_of(demand), "new": pool_of(demand[-WEEK + 24 :])}, UNTIL_MS)["new"] is None


def week_of(pools: dict[str, PoolHours], name: str) -> WeekAhead:
    week = weeks_ahead(pools, UNTIL_MS)[name]
    assert week is not None
    return week


def by_fortnight(*levels: float) -> Floats:
    return np.repeat(np.array(levels, np.float64), 2 * WEEK)


def test_calm_pools_do_not_pay_for_restless_ones() -> None:
    pools = {
        "calm": pool_of(by_fortnight(20, 21, 20, 21, 20, 21)),
        "restless": pool_of(by_fortnight(6, 26, 12, 30, 4, 18)),
    }
    calm, restless = week_of(pools, "calm"), week_of(pools, "restless")
    assert calm.high - calm.low <= 5
    assert restless.high - restless.low >= 16


def test_demand_can_exceed_a_pool_only_where_jobs_queue() -> None:
    demand = by_fortnight(26, 32, 24, 30, 25, 32)
    bound, queued = (week_of({"": pool_of(demand, capacity=most)}, "") for most in (32.0, None))
    assert bound.high == 32
    assert queued.high > 32
    assert (bound.low, bound.point) == (queued.low, queued.point)
    shrunk = week_of({"": pool_of(demand, 7.6, 7.6)}, "")
    assert (shrunk.low, shrunk.point, shrunk.high) == (7, 7, 7)


def test_peak_demand_is_the_least_that_suffices() -> None:
    hours = np.arange(1.0, WEEK + 1)
    assert peak_demand(hours, 0.95) == 160  # 159.6 hours
    assert peak_demand(hours, 0.99) == 167
    hours[:16] = np.nan
    assert peak_demand(hours, 0.95) == 161  # 144.4 of 152 hours, after the 16
    hours[16] = np.nan
    assert np.isnan(peak_demand(hours, 0.95))
