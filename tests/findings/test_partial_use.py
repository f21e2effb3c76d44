"""The rule `partial_use`: which GPUs of a job never worked, and how to ask for fewer."""

from __future__ import annotations

import shlex

import pytest

from tests.findings.one_rule import of_rule, only_of
from tests.findings.scenarios.builder import H100, Fleet, Gpu

RULE = "partial_use"
NEXT_TIME = "taking the unused GPUs would end the work on the others: change the next submission instead"


def test_the_unused_gpus_of_a_job_and_what_they_cost() -> None:
    fleet = Fleet(2)
    gpus = fleet.host("h1", H100, 4)
    fleet.run(gpus, "ann", util=(90.0, 80.0, 0.0, 0.0), slurm_job_id="7", power_w=100.0)
    found = only_of(RULE, fleet)
    assert (found.gpus, found.host, found.holder, found.job) == (("GPU-h1-2", "GPU-h1-3"), "h1", "ann", "slurm:7")
    assert (found.gpu_hours, found.energy_kwh) == (
        96.0,
        pytest.approx(9.6 * 287 / 288),
    )  # what the counter stood at before its first row of 5 minutes is not known
    assert found.cost is not None
    numbers = found.evidence.numbers
    assert [numbers[f"gpus_{name}"] for name in ("of_the_job", "used", "never_used")] == [4, 2, 2]
    assert (numbers["used_gpu_util_mean_pct"], numbers["unused_gpu_util_mean_pct"]) == (pytest.approx(85.0), 0.0)
    assert (found.next_command, found.reclaimable_gpus) == ("#SBATCH --gres=gpu:2", ())
    assert NEXT_TIME in found.notes


@pytest.mark.parametrize(
    ("levels", "directive"),
    [
        ((90, 90, 90, 0), "#SBATCH --gpus=3"),
        ((90, 0, 90, 0), "#SBATCH --nodes=2 --gres=gpu:1"),
        ((90, 90, 0, 0), "#SBATCH --gres=gpu:2"),
        ((90, 2, 0, 0), "#SBATCH --gres=gpu:2"),  # what works a little is part of the work
    ],
)
def test_slurm_is_asked_for_what_was_used_on_each_host(levels: tuple[float, ...], directive: str) -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2) + fleet.host("h2", H100, 2)
    fleet.run(gpus, "ann", util=levels, slurm_job_id="7")
    assert only_of(RULE, fleet).next_command == directive


def test_a_pod_is_looked_at_and_told_how_many() -> None:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", H100, 2), "ann", util=(90.0, 0.0), pod="a b", namespace="lab")
    found = only_of(RULE, fleet)
    assert shlex.split(found.next_command) == ["kubectl", "get", "pod", "-n", "lab", "a b", "-o", "yaml"]
    assert "resubmit with 1 of nvidia.com/gpu" in found.notes


def test_one_bare_process_on_two_gpus_is_one_program() -> None:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", H100, 2), "ann", util=(90.0, 0.0), one_process=True)
    found = only_of(RULE, fleet)
    assert (found.job, found.next_command) == (None, "export CUDA_VISIBLE_DEVICES=GPU-h1-0")
    assert not found.reclaimable


@pytest.mark.parametrize(("apart_s", "parent", "count"), [(0, 50, 1), (60, 50, 1), (61, 50, 0), (0, 1, 0)])
def test_bare_processes_belong_together_by_parent_and_start(apart_s: int, parent: int, count: int) -> None:
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    began = fleet.start_ms - 600_000
    fleet.run(first, "ann", util=90.0, parent_pid=parent, started=began)
    fleet.run(second, "ann", parent_pid=parent, started=began + apart_s * 1000)
    assert len(of_rule(RULE, fleet)) == count


def test_a_child_belongs_to_its_parent_whenever_it_was_started() -> None:
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=90.0, pid=600, parent_pid=1)
    fleet.run(second, "ann", fleet.between(0.2), parent_pid=600)
    assert only_of(RULE, fleet).gpus == ("GPU-h1-1",)


@pytest.mark.parametrize(("minutes", "count"), [(60, 0), (65, 1)])
def test_a_job_of_an_hour_may_still_be_loading(minutes: int, count: int) -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2)
    fleet.run(gpus, "ann", fleet.between(-minutes / 1440), util=(90.0, 0.0), slurm_job_id="7")
    assert len(of_rule(RULE, fleet)) == count


@pytest.mark.parametrize(("least", "most", "count"), [(0.4, 90, 1), (0.6, 90, 0), (0, 5.5, 1), (0, 4.5, 0)])
def test_unused_and_used_are_means_over_all_of_the_time(least: float, most: float, count: int) -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2)
    blip = fleet.wave(least * 10, period_h=10 / 6, on_h=1 / 6)
    fleet.run(gpus, "ann", util=(most, blip), slurm_job_id="7")
    assert len(of_rule(RULE, fleet)) == count


def test_a_gpu_that_worked_before_the_window_was_of_use() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    early = fleet.wave(90, period_h=72, on_h=24)
    fleet.run(gpus, "ann", util=(90.0, early), slurm_job_id="7")
    assert of_rule(RULE, fleet, since="2026-11-19") == []


def test_a_gpu_that_was_never_measured_is_not_unused() -> None:
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.run([first, second], "ann", util=(90.0, 0.0), slurm_job_id="7")
    second.override(fleet.always, gpu_util_pct=None, gpu_util_max_pct=None)
    assert of_rule(RULE, fleet) == []


def test_processes_of_their_own_under_one_claim_are_told_apart() -> None:
    """A group's claim on two GPUs: what idles on the second has nothing to do with the first."""
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.claim([first, second], "ann", 0, claim_id="42", scheduler="csv")
    for gpu, util, pid in ((first, 90.0, 11), (second, 0.0, 12)):
        fleet.run(gpu, None, util=util, pid=pid, parent_pid=1)
    found = only_of(RULE, fleet)
    assert (found.job, found.reclaimable_gpus) == ("claim:42", ("GPU-h1-1",))
    # nobody knows whose the process is, so that it is never ended
    assert found.next_command.startswith("ssh h1 nvidia-smi")


def test_what_also_runs_on_the_busy_gpu_is_not_ended() -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, claim_id="42", scheduler="csv")
    fleet.run(gpus, None, util=(90.0, 0.0), pid=11, parent_pid=1)
    found = only_of(RULE, fleet)
    assert (found.reclaimable_gpus, found.next_command.split()[2]) == ((), "nvidia-smi")


def counted(fleet: Fleet, count: int, *, used: int = 1, size: int = 8, first: float = 0) -> list[Gpu]:
    """A Slurm job that was seen on some GPUs of a host; its claim only counts how many it has."""
    gpus = fleet.host("h1", H100, size)
    fleet.run(gpus[:used], "ann", fleet.between(first), util=90.0, slurm_job_id="7", slurm_account="lab")
    fleet.claim(gpus[0].host, "ann", first, claim_id="7", count=count, account="lab")
    return gpus


def test_gpus_that_the_claim_counts_and_the_job_was_never_on() -> None:
    fleet = Fleet(2)
    gpus = counted(fleet, 4)
    found = only_of(RULE, fleet)
    assert (found.job, found.holder, found.reclaimable_gpus) == ("slurm:7", "ann", ())
    assert found.gpus == tuple(gpu.uuid for gpu in gpus[1:])
    assert found.sentence == "of which 3 never worked while other GPUs of the same job did"
    assert found.gpu_hours == pytest.approx(3 * 48)
    assert found.cost == pytest.approx(3 * 48 * 6.88)
    assert found.energy_kwh is None
    assert [found.evidence.numbers[f"gpus_{name}"] for name in ("claimed", "seen_of_the_claim")] == [4, 1]
    assert found.evidence.numbers["gpus_never_seen_of_the_claim"] == 3
    assert found.confidence.failed[-1].startswith("the allocation counts its GPUs and does not name them")
    assert found.confidence.failed[-1].endswith("3 of these 7 GPUs)")
    assert found.confidence.grade != "high"
    assert (found.next_command, NEXT_TIME in found.notes) == ("#SBATCH --gres=gpu:1", True)


def test_where_as_many_are_left_over_they_are_the_jobs() -> None:
    fleet = Fleet(2)
    gpus = counted(fleet, 4, size=6)
    fleet.run(gpus[4:], "bob", util=50.0, slurm_job_id="8")
    found = only_of(RULE, fleet)
    assert (found.gpus, found.gpu_hours) == (tuple(gpu.uuid for gpu in gpus[1:4]), pytest.approx(144))
    assert found.energy_kwh is not None
    assert found.sentence == "that never worked while other GPUs of the same job did"


@pytest.mark.parametrize("count", [1, 2])
def test_a_claim_of_what_was_seen_leaves_nothing(count: int) -> None:
    fleet = Fleet(2)
    counted(fleet, count, used=2)
    assert of_rule(RULE, fleet) == []


def test_work_of_no_known_job_may_be_the_claims() -> None:
    fleet = Fleet(2)
    gpus = counted(fleet, 4)
    fleet.run(gpus[5], "ann", fleet.between(0, 0.1), util=50.0)
    assert only_of(RULE, fleet).evidence.numbers["gpus_never_seen_of_the_claim"] == 2


def test_gpus_that_were_not_watched_are_not_unused() -> None:
    fleet = Fleet(2)
    gpus = counted(fleet, 3, size=4)
    for gpu in gpus[2:]:
        gpu.absent(fleet.between(0.5, 1))
    assert of_rule(RULE, fleet) == []


@pytest.mark.parametrize(("minutes", "number"), [(60, 0), (65, 1)])
def test_a_claim_of_an_hour_may_still_be_loading(minutes: float, number: int) -> None:
    fleet = Fleet(1)
    counted(fleet, 2, first=-minutes / 1440)
    assert len(of_rule(RULE, fleet)) == number


def test_a_claim_of_another_run_is_not_this_one() -> None:
    """A job that was requeued: on which of the host's GPUs its first run was nobody knows."""
    fleet = Fleet(2)
    gpus = counted(fleet, 4, first=-1)
    fleet.claim(gpus[0].host, "ann", 0, 0.5, claim_id="7", count=4)
    assert of_rule(RULE, fleet) == []
