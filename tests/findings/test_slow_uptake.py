"""The rule `slow_uptake`: time to first use and the ramp of GPUs that came inside the lake's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.rules.slow_uptake import SLOW_UPTAKE
from fallow.clock import utc_day
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import H100, T_END, Fleet, Gpu
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from tests.findings.scenarios.builder import Mask

RULE = SLOW_UPTAKE
DAY_MS = 86_400_000


def added(
    days_ago: float, work: Mask | None = None, *, days: float = 24, fleet_work: bool = True
) -> tuple[Fleet, list[Gpu]]:
    """A busy host, and one with two GPUs that came so many days before the end and work then."""
    fleet = Fleet(days, interval_s=1800)
    old = fleet.host("h1", H100, 2)
    if fleet_work:
        train(fleet, old, "ann")
    gpus = fleet.host("h2", H100, 2)
    if work is not None:
        train(fleet, gpus, "bob", work, job="1002")
    for gpu in gpus:
        gpu.absent(fleet.between(0, -days_ago))
    return fleet, gpus


def grid(days: float = 24) -> Fleet:
    return Fleet(days, interval_s=1800)


def test_nobody_has_used_them() -> None:
    fleet, gpus = added(10)
    (each,) = found(RULE, fleet)
    numbers = each.evidence.numbers
    assert (each.host, each.gpus) == ("h2", tuple(gpu.uuid for gpu in gpus))
    assert each.subject == f"added {utc_day(T_END - 10 * DAY_MS)}"
    assert (each.since_ms, each.gpu_hours) == (T_END - 10 * DAY_MS, pytest.approx(480))
    assert (numbers["gpus_without_any_use"], numbers["first_use_after_h"], numbers["days_since_added"]) == (2, None, 10)
    assert (numbers["active_share_since"], numbers["active_share_of_the_fleet"]) == (0, 1)
    assert each.reclaimable_gpus == each.gpus
    assert each.next_command.startswith("ssh h2 nvidia-smi --query-gpu")


@pytest.mark.parametrize(("days", "fires"), [(6.9, False), (7.1, True)])
def test_first_use_after_a_week(days: float, *, fires: bool) -> None:
    fleet, _ = added(12, grid().between(-12 + days))
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        assert each.evidence.numbers["first_use_after_h"] == pytest.approx(7.1 * 24, abs=0.5)


@pytest.mark.parametrize(("hours", "fires"), [(11, True), (13, False)])
def test_the_ramp_to_half_of_the_fleet(hours: float, *, fires: bool) -> None:
    fleet, _ = added(18, grid().daily(0, hours))
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        assert each.evidence.numbers["ramp_after_days"] is None
        assert each.evidence.numbers["active_share_since"] == pytest.approx(11 / 24, rel=0.05)


def test_a_ramp_is_not_judged_within_two_weeks() -> None:
    assert found(RULE, added(13, grid().daily(0, 2))[0]) == []


def test_a_fleet_that_rests_is_no_measure() -> None:
    assert found(RULE, added(18, grid().daily(0, 2), fleet_work=False)[0]) == []


def test_what_was_there_from_the_start_is_not_new() -> None:
    assert found(RULE, added(23.5)[0]) == []


def test_uptake_that_was_over_before_the_window_is_history() -> None:
    fleet, _ = added(20, grid().between(-10))
    assert len(found(RULE, fleet)) == 1
    assert found(RULE, fleet, since="2026-11-14") == []


def test_gpus_that_came_on_two_days_are_two_findings() -> None:
    fleet, gpus = added(12)
    gpus[0].absent(fleet.between(0, -9))
    assert [each.evidence.numbers["gpus_added"] for each in found(RULE, fleet)] == [1, 1]
