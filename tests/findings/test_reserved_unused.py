"""The rule `reserved_unused`: claimed GPUs without a process, from which length on, and what to type."""

from __future__ import annotations

import pytest

from analytics.rules.reserved_unused import RESERVED_UNUSED
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import H100, T_END, Fleet, Gpu
from tests.findings.scenarios.situations import train

RULE = RESERVED_UNUSED
DAY_MS = 86_400_000


def claimed(days: float, **claim: object) -> tuple[Fleet, list[Gpu]]:
    """Two GPUs, idle and free, and from so many days before the end claimed by bob."""
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "bob", -days, **({"claim_id": "77", "account": "lab"} | claim))  # type: ignore[arg-type]
    return fleet, gpus


def test_a_job_without_a_process() -> None:
    fleet, gpus = claimed(1)
    (each,) = found(RULE, fleet)
    assert (each.holder, each.job, each.subject, each.gpu_hours) == ("bob", "slurm:77", "bob", pytest.approx(48))
    assert each.reclaimable_gpus == tuple(gpu.uuid for gpu in gpus)
    assert each.next_command == "scancel 77"
    assert each.since_ms == T_END - DAY_MS
    numbers = each.evidence.numbers
    assert (numbers["longest_h"], numbers["gpus_reserved_now"], numbers["accounts"]) == (24, 2, "lab")
    shown = [numbers[f"reserved_gpu_hours_in_stretches_of_{minutes}_min"] for minutes in (30, 60, 120)]
    assert shown == [pytest.approx(48)] * 3
    assert not [failure for failure in each.confidence.failed if "holder" in failure]


@pytest.mark.parametrize(("minutes", "fires"), [(55, False), (60, True)])
def test_a_job_counts_from_the_shortest_length_of_held(minutes: int, *, fires: bool) -> None:
    fleet, _ = claimed(minutes / 1440)
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("days", "fires"), [(2.95, False), (3.0, True)])
def test_a_standing_claim_counts_from_three_days(days: float, *, fires: bool) -> None:
    fleet, _ = claimed(days, scheduler="csv", claim_id="contract")
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(
    ("claim", "command"),
    [
        ({"scheduler": "kubernetes", "claim_id": "lab/nb-0"}, "kubectl delete pod -n lab nb-0"),
        ({"scheduler": "kubernetes", "claim_id": "$(x)/--all"}, "kubectl delete pod -n '$(x)' -- --all"),
        ({"claim_id": "1; rm -rf /"}, "scancel '1; rm -rf /'"),
        ({"claim_id": "-u root"}, "scancel -- '-u root'"),
    ],
)
def test_the_command_is_that_of_the_scheduler(claim: dict[str, object], command: str) -> None:
    fleet, _ = claimed(1, **claim)
    (each,) = found(RULE, fleet)
    assert each.next_command == command


def test_a_standing_claim_is_only_looked_at() -> None:
    fleet, _ = claimed(3, scheduler="csv", claim_id="contract")
    (each,) = found(RULE, fleet)
    assert each.next_command.startswith("ssh h1 nvidia-smi --query-gpu")
    assert each.notes == ("release the allocation contract where it was made; fallow does not know the command",)


def test_a_past_window_is_only_looked_at() -> None:
    fleet, _ = claimed(2)
    (each,) = found(RULE, fleet, until="2026-11-18")
    assert each.next_command == "squeue --jobs=77 --long"


def test_a_claim_that_has_ended_gives_nothing_back() -> None:
    fleet = Fleet(3)
    fleet.claim(fleet.host("h1", H100, 2), "bob", -2, -1, claim_id="77")
    (each,) = found(RULE, fleet)
    assert (each.reclaimable, each.next_command, each.gpu_hours) == (False, "", pytest.approx(48))


def test_a_job_that_works_on_another_gpu_is_not_ended() -> None:
    fleet, gpus = claimed(2)
    train(fleet, gpus[0], "bob", fleet.between(-2), job="77")
    (each,) = found(RULE, fleet)
    assert (each.gpus, each.reclaimable_gpus) == ((gpus[1].uuid,), ())
    assert each.next_command == "squeue --jobs=77 --long"
    assert "the same processes are also at work on 1 GPU" in each.confidence.failed


def test_work_of_the_last_day_lowers_the_confidence() -> None:
    fleet, gpus = claimed(2)
    train(fleet, gpus, "bob", fleet.between(-2, -0.5), job="77")
    (each,) = found(RULE, fleet)
    assert any("in the last 24 h" in failure for failure in each.confidence.failed)
    assert each.next_command == "scancel 77"


def test_unknown_claimants_are_told_apart_by_their_jobs() -> None:
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    fleet.claim([first], None, -1, claim_id="1")
    fleet.claim([second], None, -1, claim_id="2")
    there = found(RULE, fleet)
    assert [each.subject for each in there] == ["slurm:1", "slurm:2"]
    assert all("the user is not known" in each.confidence.failed for each in there)
