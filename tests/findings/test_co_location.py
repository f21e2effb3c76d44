"""The rule `co_location`: which works leave room beside one another, and how little of that is certain."""

from __future__ import annotations

import numpy as np
import pytest

from analytics.rules.co_location import CO_LOCATION
from analytics.workloads.finding_parts import SAVES_IN_A_PACKING
from analytics.workloads.sharing import Candidate, groups, together
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import A100_80, GB, Fleet
from tests.findings.scenarios.situations import train

RULE = CO_LOCATION
CARD = 80 * GB


def candidate(
    number: int, pct: float, mem_gb: float, *, holder: str = "ann", hours: int = 48, bursts: bool = False
) -> Candidate:
    """A work of constant utilization; with bursts, of 0 and twice as much in turns of seconds."""
    histogram = np.zeros(101, np.int64)
    for level in (0, int(2 * pct)) if bursts else (int(pct),):
        histogram[level] += 1_000
    return Candidate(number, f"g{number}", holder, int(mem_gb * GB), np.full(hours, pct, np.float64), histogram)


def test_the_numbers_of_a_pair() -> None:
    fleet = Fleet(3)
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=30.0, mem_gb=20, job="1")
    train(fleet, second, "ann", util=25.0, mem_gb=24, job="2")
    (each,) = found(RULE, fleet)
    assert (each.holder, each.gpus, each.host) == ("ann", (first.uuid, second.uuid), "h1")
    numbers = each.evidence.numbers
    assert (numbers["works"], numbers["mem_together_bytes"], numbers["aligned_hours"]) == (2, 44 * GB, 72)
    assert numbers["gpu_util_together_p95_pct"] == pytest.approx(55)
    assert numbers["gpu_util_together_bursts_p95_pct"] == 55
    assert numbers["saving"] is None
    assert SAVES_IN_A_PACKING in each.notes
    assert each.reclaimable_gpus == ()
    assert each.confidence.grade == "low"
    assert "interference cannot be measured: try it, and compare the time per step" in each.confidence.failed
    assert "none of them is known to be best effort, and each may slow the other down" in each.confidence.failed
    assert any("NVML cannot see" in note and "try it" in note for note in each.notes)
    assert each.next_command == f"ssh h1 nvidia-smi dmon -i {first.uuid},{second.uuid} -s puc -c 30"


def test_strangers_and_those_who_have_gone_are_said() -> None:
    fleet = Fleet(3)
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=30.0, mem_gb=20, job="1")
    train(fleet, second, "bob", fleet.between(0, -0.5), util=25.0, mem_gb=24, job="2")
    (each,) = found(RULE, fleet)
    assert each.holder == "ann+bob"
    assert "not all of them are still running" in each.confidence.failed
    assert any(failure.startswith("they belong to different users") for failure in each.confidence.failed)


@pytest.mark.parametrize(("hours", "fires"), [(24, False), (25, True)])
def test_a_day_side_by_side_is_wanted(hours: int, *, fires: bool) -> None:
    fleet = Fleet(3)
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=30.0, mem_gb=20, job="1")
    # 24 GPU-hours are not more than a day
    train(fleet, second, "ann", fleet.between(-hours / 24), util=25.0, mem_gb=24, job="2")
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(
    ("second", "fits"),
    [
        (candidate(2, 40, 40), True),
        (candidate(2, 41, 40), False),
        (candidate(2, 30, 42), True),
        (candidate(2, 30, 42.1), False),  # more than 72 GB together
        (candidate(2, 30, 40, hours=48, bursts=True), False),  # 40 and 60 in half of the time
        (candidate(2, 10, 40, bursts=True), True),
    ],
)
def test_where_room_ends(second: Candidate, *, fits: bool) -> None:
    assert (together((candidate(1, 40, 30), second), CARD) is not None) == fits


def test_hours_count_only_side_by_side() -> None:
    early, late = candidate(1, 10, 10), candidate(2, 10, 10)
    early.hourly_pct[30:] = np.nan
    late.hourly_pct[:6] = np.nan
    group = together((early, late), CARD)
    assert group is not None
    assert group.aligned_hours == 24
    late.hourly_pct[6] = np.nan
    assert together((early, late), CARD) is None


def test_each_gpu_is_in_one_group_of_three_at_most() -> None:
    made = groups([candidate(number, 10, 10) for number in range(8)], CARD)
    assert [len(group.members) for group in made] == [3, 3, 2]
    gpus = [each.gpu for group in made for each in group.members]
    assert len(gpus) == len(set(gpus)) == 8


def test_own_work_comes_first() -> None:
    those = [candidate(1, 30, 40), candidate(2, 30, 25, holder="bob"), candidate(3, 30, 20)]
    (group, *_) = groups(those, CARD)
    assert [each.work for each in group.members] == [1, 3]
