"""What the simulated scheduler knows agrees with where its jobs ran."""

from __future__ import annotations

import pytest

from analytics.simulation import FleetPlan, SimulatedFleet, plan_fleet, simulated_queue
from fallow.clock import DAY_MS, SECOND_MS


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    return plan_fleet(SimulatedFleet(until_ms=20_700 * DAY_MS, gpus=64, days=14, seed=1, showcase=True))


def test_a_job_asks_before_it_begins_and_ends_within_its_limit(plan: FleetPlan) -> None:
    claims = simulated_queue(plan).claims
    jobs = [(stay, claims[host.host.name, stay.job_id]) for host in plan.hosts for stay in host.stays if stay.job_id]
    assert len(jobs) > 100
    for stay, known in jobs:
        assert known["submitted"] <= known["eligible"] <= stay.start_ms  # type: ignore[operator]
        assert stay.end_ms - stay.start_ms <= known["time_limit_s"] * SECOND_MS  # type: ignore[operator]
        assert (known["state"] == "RUNNING") == (stay.end_ms >= plan.fleet.until_ms)


def test_a_job_waits_for_room_only_while_no_host_of_its_partition_had_any(plan: FleetPlan) -> None:
    claims = simulated_queue(plan).claims
    outside = {each.host for each in plan.planted if each.kind == "never_used"}
    long_ms, seen = 15 * 60 * SECOND_MS, 0
    for host in plan.hosts:
        for stay in (stay for stay in host.stays if stay.job_id and stay.account != "ranking"):
            waited_from = claims[host.host.name, stay.job_id]["eligible"]
            if stay.start_ms - waited_from < long_ms:  # type: ignore[operator]
                continue
            seen += 1
            middle = (stay.start_ms + waited_from) // 2  # type: ignore[operator]
            for other in (
                each for each in plan.hosts if each.host.pool == host.host.pool and each.host.name not in outside
            ):
                taken = sum(
                    len(each.gpus) for each in other.stays if each.claimed and each.start_ms <= middle < each.end_ms
                )
                taken += sum(len(each.gpus) for each in other.reservations if each.start_ms <= middle)
                assert len(other.host.gpus) - taken < len(stay.gpus)
    assert seen


def test_somebody_waits_at_the_end_and_somebody_gave_up(plan: FleetPlan) -> None:
    requests = simulated_queue(plan).requests
    assert {each["state"] for each in requests} == {"PENDING", "CANCELLED"}
    assert all(each["time"] <= each["as_of"] <= plan.fleet.until_ms for each in requests)  # type: ignore[operator]
