"""The rule `stalls`: all GPUs of a job stop together at equal intervals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.findings.one_rule import of_rule, only_of
from tests.findings.scenarios.builder import H100, Fleet

RULE = "stalls"
MINUTE_H = 1 / 60


def fleet_of(
    stall_min: float, period_min: float, *, days: float = 1, util: float = 95.0, shift_min: float = 0
) -> Fleet:
    """Two GPUs of one job; the second stops `shift_min` after the first."""
    fleet = Fleet(days, interval_s=60)
    gpus = fleet.host("h1", H100, 2)
    still = [fleet.every(period_min / 60, stall_min / 60, offset_h=shift / 60) for shift in (0, shift_min)]
    fleet.run(gpus, "ann", util=[np.where(each, 0.0, util) for each in still], slurm_job_id="7")
    return fleet


def test_period_length_share_and_gpus() -> None:
    found = only_of(RULE, fleet_of(3, 20))
    numbers = found.evidence.numbers
    assert (found.subject, found.gpus, found.holder) == ("slurm:7", ("GPU-h1-0", "GPU-h1-1"), "ann")
    assert (numbers["stall_count"], numbers["stall_mean_s"], numbers["period_mean_min"]) == (72, 180.0, 20.0)
    assert (numbers["period_cv"], numbers["stalled_share"]) == (0.0, pytest.approx(0.15))
    assert (found.gpu_hours, numbers["job_gpu_hours"]) == (pytest.approx(7.2), pytest.approx(48.0))
    assert found.energy_kwh is None  # nobody measured so short a time apart
    assert found.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0,GPU-h1-1 -s puc -c 30"
    assert not found.reclaimable


@pytest.mark.parametrize(
    ("stall_min", "period_min", "count"),
    [(1, 11, 0), (1, 10, 1), (10, 60, 1), (11, 60, 0), (6, 12, 1), (7, 12, 0)],
)
def test_share_and_length(stall_min: int, period_min: int, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(stall_min, period_min))) == count


@pytest.mark.parametrize(("days", "count"), [(9 / 72, 0), (10 / 72, 1)])
def test_ten_of_them_are_needed(days: float, count: int) -> None:
    """Three an hour: nine in three hours."""
    assert len(of_rule(RULE, fleet_of(4, 20, days=days))) == count


@pytest.mark.parametrize(("shift_min", "count"), [(0, 1), (2, 1), (3, 0)])
def test_only_the_time_in_which_all_stand_still_counts(shift_min: int, count: int) -> None:
    """Four minutes of twenty: shifted by two minutes, two are left in common, a tenth."""
    assert len(of_rule(RULE, fleet_of(4, 20, shift_min=shift_min))) == count


@pytest.mark.parametrize(("util", "count"), [(49.0, 0), (51.0, 1)])
def test_the_job_works_in_between(util: float, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(4, 20, util=util))) == count


@pytest.mark.parametrize(("spread", "count"), [(0.25, 1), (0.5, 0)])
def test_stalls_come_at_about_equal_intervals(spread: float, count: int) -> None:
    """Intervals that are shorter and longer in turn, by so much of their mean: just that is their coefficient of variation."""
    fleet = Fleet(2, interval_s=60)
    minutes = np.arange(fleet.rows) % 40
    still = (minutes < 4) | ((minutes >= 20 * (1 + spread)) & (minutes < 20 * (1 + spread) + 4))
    fleet.run(fleet.host("h1", H100, 2), "ann", util=np.where(still, 0, 95), slurm_job_id="7")
    found = of_rule(RULE, fleet)
    assert [each.evidence.numbers["period_cv"] for each in found] == [pytest.approx(spread, abs=0.01)] * count


def test_a_night_without_the_job_does_not_break_the_rhythm() -> None:
    fleet = Fleet(2, interval_s=60)
    still = fleet.every(1 / 3, 4 * MINUTE_H)
    fleet.run(fleet.host("h1", H100, 2), "ann", ~fleet.daily(0, 8), util=np.where(still, 0, 95), slurm_job_id="7")
    numbers = only_of(RULE, fleet).evidence.numbers
    # the first stop of each day is the end of the night's
    assert (numbers["period_mean_min"], numbers["stall_count"]) == (20.0, 94)


def test_coarse_rows_are_a_doubt() -> None:
    fleet = Fleet(2)
    fleet.run(fleet.host("h1", H100, 1), "ann", util=np.where(fleet.every(0.5, 1 / 12), 0, 95), slurm_job_id="7")
    assert "samples of 300 s are coarse for stalls of 300 s" in only_of(RULE, fleet).confidence.failed


def test_a_server_pauses_for_its_callers() -> None:
    fleet = Fleet(1, interval_s=60)
    still = fleet.every(1 / 3, 4 * MINUTE_H)
    fleet.run(fleet.host("h1", H100, 1), "svc", util=np.where(still, 0, 95), command="tritonserver")
    assert of_rule(RULE, fleet) == []
