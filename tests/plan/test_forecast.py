"""Forecasts of a daily series: which method, how far off, what lies in its bands, and what of it was really out of sample."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest

from analytics.plan.forecast import LEVELS, DemandSeries, Method, filled, forecast, predicted, rolling_test

MONDAY = date(2026, 8, 3)
WEEK = np.array([5.0, 6.0, 6.0, 6.0, 5.0, 1.0, 1.0])
GAP = float("nan")


def series(gpus: np.ndarray, capacity: float = 100.0, idle: int | None = 0) -> DemandSeries:
    days = tuple(None if np.isnan(each) else float(each) for each in gpus)
    return DemandSeries("train", "H100", MONDAY, days, capacity, idle)


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
    assert (None if found.fan is None else found.fan.method) == method
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


@pytest.mark.parametrize("method", ["ets", "seasonal_naive"])
def test_days_that_nobody_saw_make_no_band_narrower(method: Method) -> None:
    """Filled days would count as predicted without an error: of 70 % of them every second day lay outside a band of 80 %."""
    inside = list[float]()
    for seed in range(40):
        random = np.random.default_rng(seed)
        days = 20 + random.normal(0, 3, 91)
        seen = days[:84].copy()
        seen[random.permutation(84)[:58]] = GAP
        fan = predicted(method, seen, 7)
        low, high = np.array(fan.low[80]), np.array(fan.high[80])
        inside.append(float(np.mean((low <= days[84:]) & (days[84:] <= high))))
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
            low, high = np.array(fan.low[level]), np.array(fan.high[level])
            inside[level].append(float(np.mean((low <= days[84:]) & (days[84:] <= high))))
    assert [round(float(np.mean(inside[level])), 1) for level in LEVELS] == pytest.approx([0.5, 0.8, 0.9], abs=0.11)


def test_nobody_needs_less_than_nothing_and_the_same_days_give_the_same_fan() -> None:
    values = np.array([0, 0, 3, 0, 1, 0, 0] * 3 + [0, 5, 0, 0, 0, 0, 0], np.float64)
    fan = predicted("ets", values, 30)
    assert min(min(each) for each in fan.low.values()) == 0
    assert fan == predicted("ets", values, 30)
    for inner, outer in ((50, 80), (80, 95)):
        assert all(a >= b for a, b in zip(fan.low[inner], fan.low[outer], strict=True))
        assert all(a <= b for a, b in zip(fan.high[inner], fan.high[outer], strict=True))
