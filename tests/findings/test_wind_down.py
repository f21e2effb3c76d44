"""The rule `wind_down`: gaps, falls and project ends, each at its edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.rules.wind_down import WIND_DOWN
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import H100, T_END, Fleet, Gpu
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from pathlib import Path

    from tests.findings.scenarios.builder import Level

RULE = WIND_DOWN
DAY_MS = 86_400_000


def held_by_bob(util: Level, *, days: float = 19, **columns: object) -> tuple[Fleet, list[Gpu]]:
    """Two GPUs of bob's in one long process each."""
    fleet = Fleet(days, interval_s=1800)
    gpus = fleet.host("h1", H100, 2)
    fleet.run(gpus, "bob", util=util, mem_gb=60, **columns)  # type: ignore[arg-type]  # run names each of them
    return fleet, gpus


def by_day(fleet: Fleet, until_days: float) -> Level:
    """Work of eight hours a day until so many days before the end: gaps of 16 hours."""
    return np.where(fleet.daily(8, 16) & fleet.between(0, -until_days), 90.0, 0.0)


@pytest.mark.parametrize(("days", "fires"), [(2, False), (4, True)])
def test_a_gap_longer_than_a_weekend(days: float, *, fires: bool) -> None:
    fleet, gpus = held_by_bob(by_day(Fleet(19, interval_s=1800), days))
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        numbers = each.evidence.numbers
        assert (each.subject, each.holder, each.host) == ("bob", "bob", "h1")
        assert numbers["days_without_activity"] == pytest.approx(4 + 8 / 24)
        assert numbers["past_gaps_p95_days"] == pytest.approx(16 / 24)
        assert numbers["past_gap_count"] == 14
        assert each.gpu_hours == pytest.approx(2 * (4 * 24 + 8))
        assert each.reclaimable_gpus == tuple(gpu.uuid for gpu in gpus)
        assert each.notes == ()


@pytest.mark.parametrize("idle_days", [4, 14, pytest.param(33, marks=pytest.mark.long)])
@pytest.mark.parametrize("at_weekends", [True, False])
def test_it_stays_while_the_gpus_stay_idle(idle_days: float, *, at_weekends: bool) -> None:
    """Bob trained day and night, without a pause to compare with, and has not come back since."""
    fleet, gpus = held_by_bob(0.0, days=max(36, idle_days + 10))
    grid = fleet.between(0, -idle_days) & (fleet.weekdays | at_weekends)
    fleet.run(gpus, "bob", util=np.where(grid, 90.0, 0.0), mem_gb=1)
    train(fleet, fleet.host("h2", H100, 1), "ann", job="9")
    (each,) = found(RULE, fleet, since="2026-11-13")
    assert (each.subject, each.reclaimable_gpus) == ("bob", tuple(gpu.uuid for gpu in gpus))
    idle = each.evidence.numbers["days_without_activity"]
    assert idle == (idle_days if at_weekends else pytest.approx(idle_days, abs=2))
    # all of the fall counts that lies in the window
    assert each.gpu_hours == pytest.approx(2 * 24 * min(float(idle), 7))  # type: ignore[arg-type]  # a number


def test_of_who_shares_a_gpu_it_names_no_work_of_the_other() -> None:
    """Bob's work has faded, in the same pod list as Ann's, whose namespace comes first."""
    fleet, gpus = held_by_bob(by_day(Fleet(19, interval_s=1800), 4), pod="bobs", namespace="speech")
    fleet.run(gpus, "ann", fleet.between(-5), mem_gb=5, pod="anns", namespace="robotics")
    theirs = [each for each in found(RULE, fleet) if each.holder == "bob"]
    assert theirs
    for each in theirs:
        assert "robotics" not in f"{each.job} {each.next_command} {each.evidence.numbers}"
        assert "ann" not in f"{each.job} {each.next_command} {each.notes}"


def test_who_is_back_after_weeks_is_not_winding_down() -> None:
    grid = Fleet(36, interval_s=1800)
    fleet, _ = held_by_bob(np.where(grid.between(0, -20) | grid.between(-2), 90.0, 0.0), days=36)
    assert found(RULE, fleet) == []


@pytest.mark.parametrize(("share", "fires"), [(0.19, True), (0.21, False)])
def test_a_fall_to_a_fifth(share: float, *, fires: bool) -> None:
    """All day long before; for three days then so much of the day."""
    grid = Fleet(20, interval_s=300)
    fleet = Fleet(20, interval_s=300)
    util = np.where(grid.between(-3) & ~grid.every(24, 24 * share), 0.0, 90.0)
    fleet.run(fleet.host("h1", H100, 1), "bob", util=util, mem_gb=60)
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        assert each.evidence.numbers["active_gpu_hours_a_day_lately"] == pytest.approx(24 * 0.19, rel=0.02)
        assert each.evidence.numbers["active_gpu_hours_a_day_before"] == pytest.approx(24)


@pytest.mark.parametrize(("hours", "fires"), [(47, False), (49, True)])
def test_a_new_process_is_no_end(hours: float, *, fires: bool) -> None:
    grid = Fleet(19, interval_s=1800)
    fleet, _ = held_by_bob(np.where(grid.between(-3.5), 0.0, 90.0))
    (third,) = fleet.host("h2", H100, 1)
    fleet.run(third, "bob", fleet.between(-hours / 24, -hours / 24 + 0.05), mem_gb=1)
    assert bool(found(RULE, fleet)) == fires


def test_what_is_not_held_any_more_is_nobodys() -> None:
    fleet = Fleet(19, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "bob", fleet.between(0, -5))
    assert found(RULE, fleet) == []


def test_a_lull_of_everybody_is_no_end() -> None:
    fleet = Fleet(19, interval_s=1800)
    for gpu, user in zip(fleet.host("h1", H100, 4), ("ann", "bob", "eve", "joe"), strict=True):
        fleet.run(gpu, user, util=np.where(fleet.between(-4), 0, 90), mem_gb=60)
    assert found(RULE, fleet) == []


def test_who_shares_a_gpu_keeps_it() -> None:
    grid = Fleet(19, interval_s=1800)
    fleet, gpus = held_by_bob(np.where(grid.between(-4), 0.0, 90.0))
    fleet.run(gpus[0], "eve", fleet.between(-1), mem_gb=1)
    each = next(each for each in found(RULE, fleet) if each.subject == "bob")
    assert each.reclaimable_gpus == (gpus[1].uuid,)


@pytest.mark.parametrize(
    ("columns", "command"),
    [
        ({"slurm_job_id": "7"}, "squeue --user=bob"),
        ({"pod": "p", "namespace": "lab"}, "kubectl get pods -n lab"),
        ({}, "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"),
    ],
)
def test_the_command_only_looks(columns: dict[str, str], command: str) -> None:
    grid = Fleet(19, interval_s=1800)
    fleet, _ = held_by_bob(np.where(grid.between(-4), 0.0, 90.0), **columns)
    (each,) = found(RULE, fleet)
    assert each.next_command == command


@pytest.mark.parametrize(
    ("end", "days", "fires"),
    [("2026-11-09", -10, True), ("2026-11-19", 0, True), ("2026-12-04", 15, True), ("2026-12-05", 16, False)],
)
def test_a_project_end_on_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, days: float, *, fires: bool
) -> None:
    file = tmp_path / "owners.csv"
    file.write_text(f"kind,name,team,project_end\naccount,lab,physics,{end}\n", encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(file))
    fleet, gpus = held_by_bob(90.0, days=14, slurm_account="lab", slurm_job_id="7")
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        assert (each.subject, each.team, each.holder) == ("project end: account lab", "physics", "bob")
        assert each.evidence.numbers["days_until_project_end"] == days
        assert each.reclaimable_gpus == ()  # kernels run on them
        expected = 10 if days == -10 else 14
        assert each.gpu_hours == pytest.approx(2 * 24 * expected)
        assert len(each.gpus) == len(gpus)
    assert T_END % DAY_MS == 0
