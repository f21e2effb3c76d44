"""The rule `low_efficiency`: the largest holders who use a quarter of their time or less."""

from __future__ import annotations

import pytest

from analytics.tables.evidence_text import evidence
from tests.findings.one_rule import of_rule, only_of
from tests.findings.scenarios.builder import A100_80, H100, Fleet

RULE = "low_efficiency"


def test_efficiency_rank_and_share() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", A100_80, 4)
    fleet.run(gpus[:3], "bob", util=90.0, slurm_job_id="1", power_w=100.0)
    fleet.run(gpus[3], "ann", util=20.0, slurm_job_id="2", power_w=100.0)
    found = only_of(RULE, fleet)
    numbers = found.evidence.numbers
    energy_kwh = pytest.approx(
        7.2 * 287 / 288
    )  # what the counter stood at before its first row of 5 minutes is not known
    assert (found.holder, found.subject, found.gpu_hours, found.energy_kwh) == ("ann", "ann", 72.0, energy_kwh)
    assert (numbers["gpu_util_mean_pct"], numbers["used_gpu_hours"]) == (pytest.approx(20), pytest.approx(14.4))
    assert (numbers["rank_among_holders"], numbers["share_of_held_hours"]) == ("2 of 2", 0.25)
    assert (numbers["sm_active_mean_pct"], numbers["gpus_with_sm_activity"]) == (None, None)
    assert found.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-3 -s puc -c 30"
    assert not found.reclaimable


@pytest.mark.parametrize(("util", "count"), [(24.0, 1), (25.0, 1), (26.0, 0)])
def test_a_quarter_is_low(util: float, count: int) -> None:
    fleet = Fleet(3)
    fleet.run(fleet.host("h1", H100, 1), "ann", util=util)
    assert len(of_rule(RULE, fleet)) == count


@pytest.mark.parametrize(("hours", "count"), [(50, 0), (51, 1)])
def test_more_than_fifty_gpu_hours(hours: int, count: int) -> None:
    fleet = Fleet(hours / 24)
    fleet.run(fleet.host("h1", H100, 1), "ann", util=10.0)
    assert len(of_rule(RULE, fleet)) == count


@pytest.mark.parametrize(("gpus", "count"), [(49, 1), (50, 0)])
def test_two_percent_of_all_hours(gpus: int, count: int) -> None:
    fleet = Fleet(52 / 24, interval_s=3600, process_interval_s=3600)
    small, *rest = fleet.host("h1", H100, gpus + 1)
    fleet.run(small, "ann", util=10.0)
    fleet.run(rest, "bob", util=90.0)
    assert len(of_rule(RULE, fleet)) == count


def test_only_the_fifteen_largest_holders() -> None:
    fleet = Fleet(52 / 24, interval_s=3600, process_interval_s=3600)
    for number, gpu in enumerate(fleet.host("h1", H100, 16)):
        # all of them alike: they share the rank, and names decide who is among the fifteen
        fleet.run(gpu, f"user{number:02}", util=10.0)
    found = of_rule(RULE, fleet)
    assert [each.holder for each in found] == [f"user{number:02}" for number in range(15)]
    assert {each.evidence.numbers["rank_among_holders"] for each in found} == {"1 of 16"}


def test_reserved_time_without_a_process_is_another_rules() -> None:
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    fleet.claim([first, second], "ann", 0, claim_id="5")
    fleet.run(first, "ann", util=45.0, slurm_job_id="5")
    assert of_rule(RULE, fleet) == []


def test_unknown_utilization_is_in_neither_sum_and_is_said() -> None:
    fleet = Fleet(4)
    (gpu,) = fleet.host("h1", A100_80, 1)
    fleet.run(gpu, "ann", util=20.0)
    # the agent reads memory and processes, but the driver gives no utilization
    gpu.override(fleet.between(0, 1), gpu_util_pct=None, gpu_util_max_pct=None)
    found = of_rule(RULE, fleet)
    assert [each.evidence.numbers["gpu_util_mean_pct"] for each in found] == [pytest.approx(20)]


def test_display_servers_are_no_holders() -> None:
    fleet = Fleet(3)
    (gpu,) = fleet.host("h1", A100_80, 1)
    fleet.run(gpu, "root", util=1.0, kind="graphics", command="Xorg")
    assert of_rule(RULE, fleet) == []


def test_gpus_that_are_busy_themselves_are_not_named() -> None:
    """The user's mean is 22 %, of a GPU at 90 % and five at 8 %: the busy one is no example of it."""
    fleet = Fleet(3)
    busy, *calm = fleet.host("h1", H100, 6)
    fleet.run(busy, "ann", util=90.0)
    for gpu in calm:
        fleet.run(gpu, "ann", util=8.0)
    found = only_of(RULE, fleet)
    numbers = found.evidence.numbers
    assert set(found.gpus) == {each.uuid for each in calm}
    assert (found.gpu_hours, numbers["used_gpu_hours"]) == (360.0, pytest.approx(28.8))
    assert (numbers["gpu_util_mean_pct"], numbers["user_gpu_util_mean_pct"]) == (
        pytest.approx(8),
        pytest.approx(21.7, abs=0.1),
    )
    assert "21.7 % over all 6 GPUs that the user had" in str(evidence(found))


def test_sm_activity_stands_beside_the_utilization_of_the_same_time() -> None:
    fleet = Fleet(3)
    with_sm, without = fleet.host("h1", H100, 2)
    fleet.run(with_sm, "ann", util=24.0, sm=20.0)
    fleet.run(without, "ann", util=4.0)
    without.override(fleet.always, sm_active_pct=None)
    text = str(evidence(only_of(RULE, fleet)))
    assert "mean utilization 14.0 %" in text
    assert "SM activity, measured for 50.0 % of that time: mean 20.0 % at a mean utilization of 24.0 %" in text
    assert "mean SM activity" not in text.replace("SM activity, measured", "")
