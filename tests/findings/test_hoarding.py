"""The rule `hoarding`: quota against what a team has at once, and what it has against what it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.rules.hoarding import HOARDING
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


RULE = HOARDING
HOUR = 3600
DAYS = 15
"""A day more than the rule wants, if with less confidence than after 28."""


@pytest.fixture
def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the owners file: lines of kind, name, team and quota."""

    def write(*lines: str) -> None:
        file = tmp_path / "owners.csv"
        file.write_text("\n".join(["kind,name,team,quota_gpus", *lines]) + "\n", encoding="utf-8")
        monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(file))

    return write


@pytest.mark.parametrize(("quota", "fires"), [(4, False), (5, True)])
def test_less_than_half_of_the_quota(owners: Callable[..., None], quota: int, *, fires: bool) -> None:
    owners(f"user,ann,vision,{quota}")
    fleet = Fleet(28, interval_s=HOUR)
    train(fleet, fleet.host("h1", H100, 2), "ann")
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        numbers = each.evidence.numbers
        assert (each.subject, each.team, each.host, each.reclaimable) == ("quota: vision", "vision", "", False)
        assert (numbers["quota_gpus"], numbers["allocated_at_once_q95_gpus"], numbers["quota_unused_gpus"]) == (5, 2, 3)
        assert numbers["allocated_gpu_hours"] == pytest.approx(2 * 28 * 24)
        assert each.gpu_hours == 0  # nothing of what it has is idle
        assert each.next_command == "sacctmgr show assoc where user=ann format=Account,User,GrpTRES,MaxTRES"
        assert each.sentence == "idle in a team whose quota far exceeds its allocations"
        assert each.confidence.failed == ()


def test_peaks_of_more_than_a_twentieth_of_the_time_count(owners: Callable[..., None]) -> None:
    owners("user,ann,vision,8")
    fleet = Fleet(DAYS, interval_s=HOUR)
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:1], "ann")
    train(fleet, gpus[1:], "ann", fleet.every(168, 10), job="1002")  # 6 % of the week
    assert found(RULE, fleet) == []


def test_a_team_that_has_nothing(owners: Callable[..., None]) -> None:
    owners("namespace,lab,physics,4", "user,ann,vision,2")
    fleet = Fleet(DAYS, interval_s=HOUR)
    train(fleet, fleet.host("h1", H100, 2), "ann")
    (each,) = found(RULE, fleet)
    assert (each.subject, each.gpus, each.gpu_hours, each.cost) == ("quota: physics", (), 0, None)
    assert each.next_command == "kubectl describe resourcequota -n lab"


def test_what_is_taken_and_not_used(owners: Callable[..., None]) -> None:
    owners("account,ann-lab,vision,8")
    fleet = Fleet(DAYS, interval_s=HOUR)
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:1], "ann")
    train(fleet, gpus[1:], "ann", util=0.0, job="1002")
    (each,) = found(RULE, fleet)
    numbers = each.evidence.numbers
    assert (each.subject, numbers["kind"], each.gpus) == (
        "allocation: vision",
        "allocation",
        tuple(gpu.uuid for gpu in gpus[1:]),
    )
    assert (numbers["allocated_at_once_q95_gpus"], numbers["used_at_once_q95_gpus"]) == (8, 1)
    assert (each.holder, each.gpu_hours) == ("ann", pytest.approx(7 * DAYS * 24))
    assert each.next_command == "squeue --account=ann-lab --long"


@pytest.mark.parametrize(("days", "fires"), [(13.9, False), (14, True)])
def test_two_weeks_of_demand_are_wanted(owners: Callable[..., None], days: float, *, fires: bool) -> None:
    owners("user,ann,vision,8")
    fleet = Fleet(days, interval_s=HOUR)
    train(fleet, fleet.host("h1", H100, 1), "ann")
    there = found(RULE, fleet)
    assert bool(there) == fires
    assert all("14.0 days of demand, 28 are needed" in each.confidence.failed for each in there)


def test_teams_that_share_a_gpu_have_half_of_it_each(owners: Callable[..., None]) -> None:
    owners("user,ann,vision,2", "user,bob,language,2")
    fleet = Fleet(DAYS, interval_s=HOUR)
    gpus = fleet.host("h1", H100, 1)
    for user in ("ann", "bob"):
        fleet.run(gpus, user, util=40.0, mem_gb=20)
    there = found(RULE, fleet)
    assert [each.evidence.numbers["allocated_at_once_q95_gpus"] for each in there] == [0.5, 0.5]


def test_without_an_owners_file_nothing_is_said() -> None:
    fleet = Fleet(DAYS, interval_s=HOUR)
    fleet.run(fleet.host("h1", H100, 4), "ann", mem_gb=5)
    assert found(RULE, fleet) == []
