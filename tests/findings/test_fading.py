"""The rule `ending`: work that has faded, and projects that end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.findings.one_rule import Case, edges, finds_so_many, found, numbers_of, one_host, only_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"


def held_by_bob(util: Any, *, days: float = 19, gpus: int = 2, interval_s: float = 1800, **columns: Any) -> Fleet:
    """GPUs of bob's in one long process each; the level is a function of the fleet."""
    return one_host(H100, gpus, days=days, interval_s=interval_s, user="bob", util=util, mem_gb=60, **columns)


def by_day(until_days: float) -> Callable[[Fleet], Any]:
    """Work of eight hours a day until so many days before the end: gaps of 16 hours."""
    return lambda fleet: np.where(fleet.daily(8, 16) & fleet.between(0, -until_days), 90.0, 0.0)


def until(days: float) -> Callable[[Fleet], Any]:
    return lambda fleet: np.where(fleet.between(-days), 0.0, 90.0)


def faded(**columns: str) -> Fleet:
    return held_by_bob(until(4), **columns)


def faded_to(share: float) -> Fleet:
    """All day long before; for three days then so much of the day."""
    level = lambda fleet: np.where(fleet.between(-3) & ~fleet.every(24, 24 * share), 0.0, 90.0)  # noqa: E731
    return held_by_bob(level, days=20, gpus=1, interval_s=300)


def with_a_new_process(hours: float) -> Fleet:
    fleet = held_by_bob(until(3.5))
    fleet.run(fleet.host("h2", H100, 1), "bob", fleet.between(-hours / 24, -hours / 24 + 0.05), mem_gb=1)
    return fleet


def back_after_weeks() -> Fleet:
    return held_by_bob(lambda fleet: np.where(fleet.between(0, -20) | fleet.between(-2), 90.0, 0.0), days=36)


def given_back() -> Fleet:
    fleet = Fleet(19, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "bob", fleet.between(0, -5))
    return fleet


def lull_of_everybody() -> Fleet:
    fleet = Fleet(19, interval_s=1800)
    for gpu, user in zip(fleet.host("h1", H100, 4), ("ann", "bob", "eve", "joe"), strict=True):
        fleet.run(gpu, user, util=np.where(fleet.between(-4), 0, 90), mem_gb=60)
    return fleet


EDGES = [
    edges(
        "ending",
        ("a gap of two days", 0, lambda: held_by_bob(by_day(2))),
        ("who is back after weeks", 0, back_after_weeks),
        ("a fall to more than a fifth", 0, lambda: faded_to(0.21)),
        ("a new process is no end", {47: 0, 49: 1}, with_a_new_process),
        ("what is not held any more is nobody's", 0, given_back),
        ("a lull of everybody is no end", 0, lull_of_everybody),
        apart=True,
    )
]


@pytest.mark.parametrize(("rule", "cases", "apart"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, cases: list[Case], *, apart: bool) -> None:
    finds_so_many(rule, cases, apart=apart)


@pytest.mark.parametrize(
    ("columns", "command"),
    [
        ({"slurm_job_id": "7"}, "squeue --user=bob"),
        ({"pod": "p", "namespace": "lab"}, "kubectl get pods -n lab"),
        ({}, LOOK),
    ],
)
def test_for_work_that_has_faded_the_command_only_looks(columns: dict[str, str], command: str) -> None:
    assert only_of("ending", faded(**columns)).next_command == command


def test_a_gap_longer_than_a_weekend() -> None:
    each = only_of("ending", held_by_bob(by_day(4)))
    numbers = each.evidence.numbers
    assert (each.subject, each.user, each.host) == ("bob", "bob", "h1")
    assert numbers["days_without_activity"] == pytest.approx(4 + 8 / 24)
    assert (numbers["past_gaps_p95_days"], numbers["past_gap_count"]) == (pytest.approx(16 / 24), 14)
    assert each.gpu_hours == pytest.approx(2 * (4 * 24 + 8))
    assert (each.reclaimable_gpus, each.notes) == (("GPU-h1-0", "GPU-h1-1"), ())


def test_a_fall_to_a_fifth() -> None:
    numbers = numbers_of("ending", faded_to(0.19))
    assert numbers["active_gpu_hours_a_day_lately"] == pytest.approx(24 * 0.19, rel=0.02)
    assert numbers["active_gpu_hours_a_day_before"] == pytest.approx(24)


@pytest.mark.parametrize("at_weekends", [True, False])
def test_it_stays_while_the_gpus_stay_idle(*, at_weekends: bool) -> None:
    """Bob trained day and night, without a pause to compare with, and has not come back for four days."""
    fleet = held_by_bob(0.0, days=36)
    grid = fleet.between(0, -4) & (fleet.weekdays | at_weekends)
    fleet.run(fleet.gpus, "bob", util=np.where(grid, 90.0, 0.0), mem_gb=1)
    train(fleet, fleet.host("h2", H100, 1), "ann", job="9")
    each = only_of("ending", fleet, since="2026-11-13")
    assert (each.subject, each.reclaimable_gpus) == ("bob", ("GPU-h1-0", "GPU-h1-1"))
    idle = each.evidence.numbers["days_without_activity"]
    assert idle == (4 if at_weekends else pytest.approx(4, abs=2))
    # all of the fall counts that lies in the window
    assert each.gpu_hours == pytest.approx(2 * 24 * min(float(idle), 7))  # type: ignore[arg-type]  # a number


def test_of_who_shares_a_gpu_it_names_no_work_of_the_other() -> None:
    """Bob's work has faded, in the same pod list as Ann's, whose namespace comes first."""
    fleet = held_by_bob(by_day(4), pod="bobs", namespace="speech")
    fleet.run(fleet.gpus, "ann", fleet.between(-5), mem_gb=5, pod="anns", namespace="robotics")
    theirs = [each for each in found("ending", fleet) if each.user == "bob"]
    assert theirs
    for each in theirs:
        assert "robotics" not in f"{each.job} {each.next_command} {each.evidence.numbers}"
        assert "ann" not in f"{each.job} {each.next_command} {each.notes}"


@pytest.mark.parametrize(
    ("end", "days"), [("2026-11-09", -10), ("2026-11-19", 0), ("2026-12-04", 15), ("2026-12-05", None)]
)
def test_a_project_end_on_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, days: float | None) -> None:
    file = tmp_path / "owners.csv"
    file.write_text(f"kind,name,team,project_end\naccount,lab,physics,{end}\n", encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(file))
    there = found("ending", held_by_bob(90.0, days=14, slurm_account="lab", slurm_job_id="7"))
    assert [each.evidence.numbers["days_until_project_end"] for each in there] == [days] * (days is not None)
    for each in there:
        assert (each.subject, each.team, each.user) == ("project end: account lab", "physics", "bob")
        assert each.reclaimable_gpus == ()  # kernels run on them
        assert (each.gpu_hours, len(each.gpus)) == (pytest.approx(2 * 24 * (10 if days == -10 else 14)), 2)
