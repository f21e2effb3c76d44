"""What off-peak hours would have moved, by hand: two jobs that can wait, one that nobody would put off, a day of 24 hours."""

from __future__ import annotations

import pytest

from analytics.plan.purchase import InternalPrices
from analytics.plan.replay.comparisons import ShiftedWork, shifted_work
from analytics.plan.replay.policy import OffPeakHours
from fallow.clock import HOUR_MS
from tests.plan.replays import base_of, gpu_rows, job_row, jobs_frame

DAYS_H = 48.0
NIGHT = OffPeakHours(20 * 60, 8 * 60)


def shifted(*prices: InternalPrices) -> ShiftedWork:
    jobs = jobs_frame(
        job_row("early", 10, 14),
        job_row("late", 35, 47),  # from 11:00 on the second day: at night it runs beyond the window
        job_row("served", 9, 40, partition="serving"),
    )
    placed = gpu_rows(
        DAYS_H,
        {
            "a/0": [(10, 14, "active", "slurm:early"), (35, 47, "active", "slurm:late")],
            "a/1": [(9, 40, "active", "slurm:served")],
        },
    )
    return shifted_work(base_of(jobs, placed, round(DAYS_H * HOUR_MS)), NIGHT, prices)


def test_gpu_hours_move_into_the_night() -> None:
    found = shifted()
    today = [today / HOUR_MS for today, _ in found.by_hour]
    then = [then / HOUR_MS for _, then in found.by_hour]
    assert (found.jobs, found.postponed) == (2, 2)
    assert today == [0] * 10 + [1] + [2] * 3 + [1] * 9 + [0]
    assert then == [0] * 20 + [2] * 4
    assert [each / HOUR_MS for each in found.peak_ms()] == [13, 0]
    assert found.paid is None


def test_what_is_paid_is_by_the_hour() -> None:
    hourly = tuple(0.25 if hour >= 20 else 1.5 for hour in range(24))
    free = tuple(0.0 for _ in range(24))
    prices = InternalPrices("P", "H100", hourly, {"urgent": free, "normal": free, "deferrable": hourly}, 2.0)
    assert shifted(prices).paid == pytest.approx((2 * (13 * 1.5 + 3 * 0.25) / 16, 2 * 0.25))
    unknown = InternalPrices("P", "H100", hourly, {"urgent": free, "normal": free, "deferrable": hourly}, None)
    assert shifted(unknown).paid is None
