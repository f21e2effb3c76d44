"""Forecasts of a daily series: the method, its error, its bands; when a pool is full; the fan as drawn."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest

from analytics.capacity.forecast import Crossing, DemandSeries, crossing, forecast, outlook
from analytics.capacity.forecast_models import LEVELS, Fan, Method, filled, predicted, rolling_test
from analytics.scope import Scope
from analytics.tables.chart import Band, Chart, ChartPlace, Line, Panel, signs
from analytics.tables.plan_forecast import demand_chart, order_dates
from analytics.workloads.pool_demand import most_urgent_first
from tests.drawn_charts import as_table, assert_drawn
from tests.pools import pool_of

MONDAY = date(2026, 8, 3)
WEEK = np.array([5.0, 6.0, 6.0, 6.0, 5.0, 1.0, 1.0])
GAP = float("nan")


def series(gpus: np.ndarray, capacity: float = 100.0) -> DemandSeries:
    days = tuple(None if np.isnan(each) else float(each) for each in gpus)
    there = tuple(None if day is None else capacity for day in days)
    return DemandSeries("train", "H100", MONDAY, days, there, capacity)


def growing(weeks: int, per_day: float = 0.5, noise: float = 0.0) -> np.ndarray:
    """Weeks with five busy days each and a steady growth."""
    days = np.arange(7 * weeks)
    return 10 + np.tile(WEEK, weeks) + per_day * days + np.random.default_rng(1).normal(0, noise, len(days))


def test_growth_with_a_week_is_followed_where_last_week_again_lags_behind() -> None:
    known, real = growing(10)[:-28], growing(10)[-28:]
    found = forecast(series(known), 28)
    assert found.fan is not None
    assert found.test is not None
    assert found.fan.method == found.test.method == "ets"
    assert found.test.errors["ets"] < found.test.errors["seasonal_naive"] / 2
    assert np.abs(np.array(found.fan.middle) - real).max() < 4
    assert found.more_from is None


def test_where_nothing_changes_from_week_to_week_last_week_again_stays() -> None:
    found = forecast(series(np.tile(WEEK, 6)), 14)
    assert found.fan is not None
    assert found.test is not None
    assert found.fan.method == "seasonal_naive"
    assert found.test.errors["seasonal_naive"] == 0
    assert found.test.relative_error is None
    assert found.fan.middle == tuple(np.tile(WEEK, 2))


@pytest.mark.parametrize("level", [8.0, 0.0])
def test_a_pool_that_never_changes_has_no_band(level: float) -> None:
    fan = predicted("ets", np.full(30, level), 5)
    assert {fan.middle, *fan.low.values(), *fan.high.values()} == {(level,) * 5}


@pytest.mark.parametrize(
    ("days", "method", "more_after"),
    [(0, None, 14), (13, None, 1), (14, "seasonal_naive", 14), (27, "seasonal_naive", 1), (28, "ets", None)],
)
def test_too_little_history_says_from_when_on_there_is_more(
    days: int, method: str | None, more_after: int | None
) -> None:
    found = forecast(series(growing(4)[:days]), 7)
    assert getattr(found.fan, "method", None) == method
    assert found.more_from == (None if more_after is None else MONDAY + timedelta(days + more_after))
    assert (found.test is None) == (days < 28)


def test_unknown_days_are_neither_zero_nor_scored() -> None:
    values = np.tile(WEEK, 6)
    whole = rolling_test(values)
    values[[20, 35]] = GAP
    test = rolling_test(values)
    assert test is not None
    assert whole is not None
    assert whole.origins == test.origins == 4  # from the end of the second week to that of the fifth
    assert whole.days == 28 + 21 + 14 + 7
    assert test.days == whole.days - 1 - 4  # the first gap lies after one origin, the second after all four
    assert test.errors["seasonal_naive"] == 0
    assert forecast(series(values), 7).series.known_days == 40


def test_gaps_are_filled_from_a_week_before_and_only_from_the_first_known_day_on() -> None:
    assert filled(np.array([GAP, 1, GAP, 3, 4, 5, 6, 7, 8, GAP])).tolist() == [1, 1, 3, 4, 5, 6, 7, 8, 1]


def share_inside(fan: Fan, level: int, days: np.ndarray) -> float:
    return float(np.mean((np.array(fan.low[level]) <= days) & (days <= np.array(fan.high[level]))))


@pytest.mark.parametrize("method", ["ets", "seasonal_naive"])
def test_days_that_nobody_saw_make_no_band_narrower(method: Method) -> None:
    """Filled days would count as predicted without an error: with 70 % of them, half of the days lay outside 80 %."""
    inside = list[float]()
    for seed in range(40):
        random = np.random.default_rng(seed)
        days = 20 + random.normal(0, 3, 91)
        seen = days[:84].copy()
        seen[random.permutation(84)[:58]] = GAP
        inside.append(share_inside(predicted(method, seen, 7), 80, days[84:]))
    assert np.mean(inside) > 0.7


def test_a_test_sees_nothing_of_the_days_that_it_is_judged_by() -> None:
    """By hand, last week again from three origins; each origin's answer is made of the days before it alone."""
    values = np.concatenate([np.full(14, 4.0), np.full(7, 6.0), np.full(7, 9.0), np.full(7, 9.0)])
    found = rolling_test(values)
    assert found is not None
    # from day 14: 4 against 6, 9, 9; from day 21: 6 against 9, 9; from day 28: 9 against 9
    assert found.errors["seasonal_naive"] == pytest.approx((2 + 5 + 5 + 3 + 3 + 0) / 6)
    before, after = growing(6, noise=2.0), growing(6, noise=2.0)
    after[-7:] = 500.0
    assert predicted("ets", before[:-7], 7) == predicted("ets", after[:-7], 7)


def test_as_many_days_lie_in_a_band_as_it_says() -> None:
    inside = {level: list[float]() for level in LEVELS}
    for seed in range(40):
        days = 20 + np.tile(WEEK, 13) + np.random.default_rng(seed).normal(0, 3, 91)
        fan = predicted("ets", days[:84], 7)
        for level in LEVELS:
            inside[level].append(share_inside(fan, level, days[84:]))
    assert [round(float(np.mean(inside[level])), 1) for level in LEVELS] == pytest.approx([0.5, 0.8, 0.9], abs=0.11)


def test_nobody_needs_less_than_nothing_and_the_same_days_give_the_same_fan() -> None:
    values = np.array([0, 0, 3, 0, 1, 0, 0] * 3 + [0, 5, 0, 0, 0, 0, 0], np.float64)
    fan = predicted("ets", values, 30)
    assert min(min(each) for each in fan.low.values()) == 0
    assert fan == predicted("ets", values, 30)
    for inner, outer in ((50, 80), (80, 95)):
        assert all(a >= b for a, b in zip(fan.low[inner], fan.low[outer], strict=True))
        assert all(a <= b for a, b in zip(fan.high[inner], fan.high[outer], strict=True))


NEXT = MONDAY + timedelta(7)


def fan(low: list[float], middle: list[float], high: list[float]) -> Fan:
    return Fan("ets", tuple(middle), dict.fromkeys(LEVELS, tuple(low)), dict.fromkeys(LEVELS, tuple(high)))


def test_a_pool_is_full_where_less_than_half_a_gpu_is_left() -> None:
    week = series(np.full(7, 4.0), capacity=8)
    found = fan([5, 5, 6, 7], [6, 7.4, 7.6, 8], [7.5, 7.6, 9, 9])
    assert crossing(found, week) == Crossing(NEXT + timedelta(1), NEXT + timedelta(2), None)
    assert crossing(found, replace(week, capacity=13)) == Crossing(None, None, None)


def test_growth_reaches_capacity_on_the_day_on_which_it_does() -> None:
    real = growing(20)
    full_on = MONDAY + timedelta(int(np.argmax(real > 59.5)))
    pool = outlook(series(growing(10), capacity=60), 91, 14)
    assert pool.full is not None
    assert pool.full.likely is not None
    assert abs((pool.full.likely - full_on).days) <= 7
    assert pool.order_by(pool.full.likely) == pool.full.likely - timedelta(14)
    assert pool.days_late(pool.full.likely) == 0
    late = outlook(series(growing(10), capacity=60), 91, 84)
    assert late.days_late(pool.full.likely) == 84 - (pool.full.likely - pool.series.next_day).days > 0


def test_days_on_which_a_pool_was_full_are_those_of_the_gpus_that_it_had_then() -> None:
    grown = replace(series(np.array([4.0, 4.0, 5.0]), capacity=8), there=(4.0, 8.0, 5.0))
    assert (grown.full_days, grown.is_full_now) == (2, False)


def test_who_has_to_order_first_stands_first_and_each_pool_may_have_its_own_lead_time() -> None:
    free, soon = series(growing(10, per_day=0)), growing(10)
    own = {"new": series(growing(1)), "free": free, "b": series(soon, 65), "a": series(soon, 60)}
    pools = [pool_of(replace(each, pool=pool), lead_days=7) for pool, each in own.items()]

    def order(**scope: str) -> list[str]:
        return [pool.pool for pool in most_urgent_first(pools, Scope(**scope))]

    assert order() == ["a", "b", "free", "new"]
    assert order(pool="b") == ["b"]
    assert order(model="A100") == []
    pools = [pool.with_outlook(91, 84) if pool.pool == "b" else pool for pool in pools]
    assert order() == ["b", "a", "free", "new"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (series(np.full(28, 8.0), 8), "train: keep. Demand reaches all 8 GPUs on 31 Aug 2026."),
        (series(growing(10), 60), "Demand reaches all 60 GPUs on"),
        (series(growing(10, per_day=0), 100), "No pool is likely to be full by"),
        (series(growing(10, per_day=0, noise=2.0), 19), "train may be full from"),
        (series(growing(1)), "there is a forecast from 17 Aug 2026."),
    ],
)
def test_the_headline_says_how_it_stands(own: DemandSeries, said: str) -> None:
    section = order_dates([pool_of(own)])
    assert said in str(section.headline)
    assert len(section.cells) == len(section.lines) == len(section.records()) == 1


def test_the_table_without_a_pool_and_of_one_that_was_full() -> None:
    none = order_dates([])
    assert str(none.headline) == "No pool has a GPU at the end of the window."
    assert (none.rows, none.notes, none.chart) == ((), (), None)
    full = order_dates([pool_of(series(np.full(28, 8.0), 8))])
    assert "train was full on 28 of 28 days. Demand may be higher" in " ".join(map(str, full.notes))


def test_days_go_on_after_the_series() -> None:
    own = series(np.full(7, 1.0))
    assert (own.day(0), own.next_day, own.latest) == (MONDAY, date(2026, 8, 10), (1.0, 100.0))
    assert series(np.full(7, np.nan)).latest is None


@pytest.fixture
def chart() -> Chart:
    gpus = growing(6, noise=1.0)
    gpus[20] = GAP
    found = demand_chart([pool_of(series(gpus, capacity=40), 28)], 6)
    assert found is not None
    return found


def test_days_that_were_and_days_to_come_stand_on_one_axis(chart: Chart) -> None:
    [panel] = chart.panels
    there, measured, ahead = (each for each in panel.marks if isinstance(each, Line))
    assert len(panel.places) == len(measured.values) == len(ahead.values) == 42 + 28
    assert measured.values[20] is there.values[20] is None
    assert set(there.values) == {None, 40.0}
    assert all(each is None for each in (*measured.values[42:], *ahead.values[:42]))
    assert not panel.is_dotted
    bands = [each for each in panel.marks if isinstance(each, Band)]
    widths = [[high - low for (_, low), (_, high) in zip(each.low, each.high, strict=True)] for each in bands]
    assert [len(each) for each in widths] == [28, 28, 28]
    assert [at for at, _ in bands[0].low] == list(range(42, 70))
    assert np.all(np.diff(np.array(widths), axis=0) <= 0)  # the wider ones below
    assert panel.ticks[-1] >= max(high for _, high in bands[0].high)
    assert str(panel.places[0].short) == "3 Aug"
    assert_drawn(as_table(chart))


def test_a_band_alone_makes_the_axis() -> None:
    band = Band("", "held", ((1, 1.0), (2, 2.0)), ((1, 3.0), (2, 40.0)))
    places = tuple(ChartPlace(name) for name in "abc")
    assert Panel("", (band, Line("", "held", (None,) * 3)), places).ticks == (0.0, 20.0, 40.0)


def test_without_a_forecast_there_is_no_chart() -> None:
    assert demand_chart([pool_of(series(growing(1)), 28)], 6) is None
    assert demand_chart([pool_of(series(growing(6)), 28)], 0) is None


def test_the_legend_names_each_line_once_whatever_the_number_of_panels() -> None:
    found = demand_chart([pool_of(series(growing(6)), 28), pool_of(series(growing(7)), 28)], 6)
    assert found is not None
    assert len(found.panels) == 2
    words = [str(words) for _, _, words in signs(found)]
    assert words == ["95 % band, 80 % band, 50 % band", "GPUs", "demand", "forecast"]


def test_the_verdict_rests_on_one_horizon_and_the_order_on_the_time_that_is_asked_for() -> None:
    """Demand takes all GPUs within the quarter: a shorter horizon shows less, a shorter lead time leaves more time."""
    pool = pool_of(series(growing(10), 60))
    brief = pool.with_outlook(7, 14)
    assert pool.verdict.order_by is not None
    assert brief.outlook.full is not None
    assert (brief.outlook.full.likely, brief.verdict.kind, brief.verdict.gpus) == (None, "order", pool.verdict.gpus)
    assert brief.verdict.order_by == pool.verdict.order_by + timedelta(84 - 14)
