"""The peak demand of a pool from its hours, what is kept, and how earlier estimates held."""

from __future__ import annotations

import math

import polars as pl
import pytest

from analytics.capacity.jobs import JOB_SCHEMA, queued_hours, waiting
from analytics.capacity.peak_demand import MARGIN, Backtest, backtests, kept_peak, peak_demand, quantile_of
from fallow.clock import DAY_MS, HOUR_MS


def hours_of(days: list[float], there: float = 16.0, unknown: float = 0.0) -> pl.DataFrame:
    """The hours of so many days, each day with one demand."""
    demand = [gpus for gpus in days for _ in range(24)]
    size = len(demand)
    return pl.DataFrame(
        {
            "time": [hour * HOUR_MS for hour in range(size)],
            "there": [there] * size,
            "demand": demand,
            "unknown": [unknown] * size,
            "demand_or_unknown": [gpus + unknown for gpus in demand],
        }
    )


def test_what_is_kept_by_its_formula() -> None:
    peak = peak_demand(hours_of([5.0] * 15), 15 * DAY_MS, 0.95)
    assert peak is not None
    assert (peak.peak, peak.highest, peak.days) == (5.0, 5.0, 15)
    assert peak.kept() == math.ceil(5 * 1.15 * (1 + 1 / 15)) == 7
    assert (peak.reserve(), peak.kept(0.0), peak.kept(1.0)) == (2, 6, 11)


def test_demand_that_grew_within_the_month_is_that_of_the_last_week() -> None:
    """The last week is 95 % of its own hours, and a quarter of the month's."""
    peak = peak_demand(hours_of([2.0] * 27 + [9.0]), 28 * DAY_MS, 0.95)
    assert peak is not None
    assert peak.peak == 9.0


def test_hours_in_which_more_than_a_tenth_was_not_observed_do_not_count() -> None:
    assert peak_demand(hours_of([5.0] * 15, unknown=1.7), 15 * DAY_MS, 0.95) is None
    peak = peak_demand(hours_of([5.0] * 15, unknown=1.5), 15 * DAY_MS, 0.95)
    assert peak is not None
    assert (peak.peak, peak.peak_if_unknown) == (5.0, 6.5)


@pytest.mark.parametrize(
    ("days", "found"),
    [
        ([4.0] * 13, None),
        ([4.0] * 21, Backtest(2, 336, 0, 0)),
        ([4.0] * 35, Backtest(3, 504, 0, 0)),
        # 4 * 1.15 * (1 + 1/14) keeps 5: a day of 9 in the last week is 4 more
        ([4.0] * 20 + [9.0], Backtest(2, 336, 24, 4)),
        # nothing is short of GPUs that the pool never had
        ([4.0] * 20 + [90.0], Backtest(2, 336, 24, 11)),
    ],
)
def test_estimates_of_earlier_weeks_are_held_against_the_week_after(days: list[float], found: Backtest | None) -> None:
    assert backtests(hours_of(days), len(days) * DAY_MS, 0.95, (MARGIN,)) == [found]


def test_where_estimates_fell_short_by_more_than_the_reserve_the_highest_demand_is_kept_for() -> None:
    calm = kept_peak(hours_of([4.0] * 28), 28 * DAY_MS, 0.95)
    # a day of 12 each week is more than a tenth of the last one, and 1 of 28 days in the weeks before
    restless = kept_peak(hours_of([4.0] * 13 + [12.0] + [4.0] * 13 + [4.0]), 28 * DAY_MS, 0.95)
    assert calm is not None
    assert restless is not None
    assert (calm[0].quantile, calm[0].peak) == (0.95, 4.0)
    assert (restless[0].quantile, restless[0].peak) == (1.0, 12.0)


def test_production_keeps_for_a_hundredth_of_the_hours() -> None:
    assert (quantile_of("production"), quantile_of("train")) == (0.99, 0.95)


def test_a_queued_job_could_have_used_its_gpus_for_as_long_as_it_ran() -> None:
    """Two jobs of four GPUs waited from 1:00: one for 0.5 h, and ran for longer; one for 2 h, and ran for 0.5 h."""
    placed = pl.DataFrame({"host": ["h1"], "time": [0], "end": [4 * HOUR_MS], "pool": ["train"], "model": ["H100"]})
    job = {"scheduler": "slurm", "user": "bob", "gpus": 4, "hosts": ["h1"], "host_count": 1, "submitted": HOUR_MS}
    times = [(1.5, 3.0), (3.0, 3.5)]
    jobs = [
        job | {"job": str(at), "start": round(start * HOUR_MS), "end": round(end * HOUR_MS)}
        for at, (start, end) in enumerate(times)
    ]
    waits = waiting(pl.DataFrame(jobs, schema=JOB_SCHEMA), placed, (0, 4 * HOUR_MS))
    assert queued_hours(waits).select("time", "queued").rows() == [(HOUR_MS, pytest.approx(4))]


@pytest.mark.parametrize(
    ("held", "end", "found"),
    [((1, 2), 7.0, [(0, 1), (2, 3)]), ((0, 2), 4.0, [(2, 3)]), ((1, 2), 4.5, [(0, 1), (2, 2.5)])],
)
def test_a_job_that_its_account_s_limit_holds_could_have_used_nothing(
    held: tuple[int, int], end: float, found: list[tuple[float, float]]
) -> None:
    """It waited from 0:00 to 3:00; in the hours that the limit held it back, it could not have run."""
    placed = pl.DataFrame({"host": ["h1"], "time": [0], "end": [8 * HOUR_MS], "pool": ["train"], "model": ["H100"]})
    job = {"scheduler": "slurm", "job": "1", "user": "bob", "gpus": 4, "hosts": ["h1"], "host_count": 1}
    times = {"submitted": 0, "start": 3 * HOUR_MS, "end": round(end * HOUR_MS)}
    limit = [{"time": held[0] * HOUR_MS, "end": held[1] * HOUR_MS, "cause": "account_limit"}]
    waits = waiting(pl.DataFrame([job | times | {"held": limit}], schema=JOB_SCHEMA), placed, (0, 8 * HOUR_MS))
    assert waits.select("time", "end").rows() == [(since * HOUR_MS, until * HOUR_MS) for since, until in found]
