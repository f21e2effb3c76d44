"""When a pool is full, what giving back changes, and until when to order; and what the section says of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.plan.forecast import LEVELS, Crossing, Fan, crossing, of_scope, outlooks
from analytics.scope import Scope
from analytics.tables.plan_forecast import forecast_sentence, order_dates
from tests.plan.test_forecast import MONDAY, growing, series

if TYPE_CHECKING:
    from analytics.plan.forecast import DemandSeries

NEXT = MONDAY + timedelta(7)


def fan(low: list[float], middle: list[float], high: list[float]) -> Fan:
    return Fan("ets", tuple(middle), dict.fromkeys(LEVELS, tuple(low)), dict.fromkeys(LEVELS, tuple(high)))


def test_a_pool_is_full_where_less_than_half_a_gpu_is_left() -> None:
    week = series(np.full(7, 4.0), capacity=8)
    found = fan([5, 5, 6, 7], [6, 7.4, 7.6, 8], [7.5, 7.6, 9, 9])
    assert crossing(found, week, 0) == Crossing(NEXT + timedelta(1), NEXT + timedelta(2), None)
    assert crossing(found, week, 1) == Crossing(NEXT + timedelta(2), None, None)
    assert crossing(found, week, 5) == Crossing(None, None, None)


def test_growth_reaches_capacity_on_the_day_on_which_it_does() -> None:
    real = growing(20)
    full_on = MONDAY + timedelta(int(np.argmax(real > 59.5)))
    [pool] = outlooks([series(growing(10), capacity=60)], 91, 14)
    assert pool.full is not None
    assert pool.full.likely is not None
    assert abs((pool.full.likely - full_on).days) <= 7
    assert pool.order_by(pool.full.likely) == pool.full.likely - timedelta(14)
    assert pool.days_late(pool.full.likely) == 0
    assert pool.full_after_return is None
    [late] = outlooks([series(growing(10), capacity=60)], 91, 84)
    assert late.days_late(pool.full.likely) == 84 - (pool.full.likely - pool.series.next_day).days > 0


def test_giving_back_first_moves_the_day() -> None:
    [pool] = outlooks([series(growing(10), capacity=60, idle=8)], 91, 84)
    [without] = outlooks([series(growing(10), capacity=60)], 91, 84)
    assert pool.full == without.full
    assert pool.full is not None
    assert pool.full_after_return is not None
    assert pool.full.likely is not None
    assert pool.full_after_return.likely is not None
    assert 10 <= (pool.full_after_return.likely - pool.full.likely).days <= 22  # half a GPU a day
    said = str(forecast_sentence([pool]))
    assert said.startswith(
        "Waste before shortage: 8 GPUs of train that somebody has stand idle and are safe to give back."
    )
    assert "puts off the day on which it is full from" in said
    assert said.endswith(" days ago.")
    assert f"{pool.days_late(pool.full_after_return.likely)} days ago" in said  # what is ordered is for the later day
    [enough] = outlooks([series(growing(10), capacity=60, idle=60)], 91, 84)
    assert str(forecast_sentence([enough])).endswith("beyond 10 Jan 2027.")


def named(pool: str, own: DemandSeries) -> DemandSeries:
    return replace(own, pool=pool)


def test_who_has_to_order_first_stands_first_and_each_pool_may_have_its_own_lead_time() -> None:
    short, free, soon = growing(1), growing(10, per_day=0), growing(10)
    pools = [
        named("new", series(short)),
        named("free", series(free)),
        named("b", series(soon, 65)),
        named("a", series(soon, 60)),
    ]
    found = outlooks(pools, 91, 7)
    assert [each.series.pool for each in found] == ["a", "b", "free", "new"]
    assert [each.series.pool for each in outlooks(pools, 91, 7, {"b": 84})] == ["b", "a", "free", "new"]
    assert [each.series.pool for each in of_scope(found, Scope(pool="b"))] == ["b"]
    assert of_scope(found, Scope(model="A100")) == ()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (series(np.full(28, 8.0), 8), "All 8 GPUs of train are given now"),
        (series(np.array([8.0, *[2.0] * 6] * 4), 8), "are likely to be given on"),  # on one day of each week
        (series(growing(10), 60), "are likely to be given on"),
        (series(growing(10, per_day=0), 100), "No pool is likely to be full by"),
        (series(growing(10, per_day=0, noise=2.0), 19), "train may be from"),
        (series(growing(1)), "there is one from 17 Aug 2026 on"),
    ],
)
def test_the_headline_says_how_it_stands(own: DemandSeries, said: str) -> None:
    section = order_dates(outlooks([own], 91, 84))
    assert said in str(section.headline)
    assert len(section.cells) == len(section.lines) == len(section.records()) == 1


def test_without_a_pool_it_says_so() -> None:
    section = order_dates([])
    assert str(section.headline) == "No pool has a GPU at the end of the window."
    assert (section.rows, section.notes, section.chart) == ((), (), None)


def test_a_pool_that_was_full_hides_what_waited() -> None:
    notes = " ".join(map(str, order_dates(outlooks([series(np.full(28, 8.0), 8)], 91, 84)).notes))
    assert "train was full on 28 of 28 days: what waited then" in notes


def test_days_go_on_after_the_series() -> None:
    own = series(np.full(7, 1.0))
    assert (own.day(0), own.next_day) == (MONDAY, date(2026, 8, 10))
    assert own.latest == 1.0
    assert series(np.full(7, np.nan)).latest is None
