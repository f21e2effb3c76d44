"""The rule `partial_use`: which GPUs of a job never worked, and how to ask for fewer."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from tests.findings.of_rule import of_rule, only_of
from tests.findings.scenarios.builder import H100, Fleet

if TYPE_CHECKING:
    from fallow.lake import Lake

RULE = "partial_use"
NEXT_TIME = "the unused GPUs cannot be taken without ending the work on the others: it is for the next submission"


def test_the_unused_gpus_of_a_job_and_what_they_cost(lake: Lake) -> None:
    fleet = Fleet(2)
    gpus = fleet.host("h1", H100, 4)
    fleet.run(gpus, "ann", util=(90.0, 80.0, 0.0, 0.0), slurm_job_id="7", power_w=100.0)
    found = only_of(RULE, fleet, lake)
    assert (found.gpus, found.host, found.holder, found.job) == (("GPU-h1-2", "GPU-h1-3"), "h1", "ann", "slurm:7")
    assert (found.gpu_hours, found.energy_kwh) == (96.0, pytest.approx(9.6))
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
def test_slurm_is_asked_for_what_was_used_on_each_host(lake: Lake, levels: tuple[float, ...], directive: str) -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2) + fleet.host("h2", H100, 2)
    fleet.run(gpus, "ann", util=levels, slurm_job_id="7")
    assert only_of(RULE, fleet, lake).next_command == directive


def test_a_pod_is_looked_at_and_told_how_many(lake: Lake) -> None:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", H100, 2), "ann", util=(90.0, 0.0), pod="a b", namespace="lab")
    found = only_of(RULE, fleet, lake)
    assert shlex.split(found.next_command) == ["kubectl", "get", "pod", "-n", "lab", "a b", "-o", "yaml"]
    assert "resubmit with 1 of nvidia.com/gpu" in found.notes


def test_one_bare_process_on_two_gpus_is_one_program(lake: Lake) -> None:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", H100, 2), "ann", util=(90.0, 0.0), one_process=True)
    found = only_of(RULE, fleet, lake)
    assert (found.job, found.next_command) == (None, "export CUDA_VISIBLE_DEVICES=GPU-h1-0")
    assert not found.reclaimable


@pytest.mark.parametrize(("apart_s", "parent", "count"), [(0, 50, 1), (60, 50, 1), (61, 50, 0), (0, 1, 0)])
def test_bare_processes_belong_together_by_parent_and_start(lake: Lake, apart_s: int, parent: int, count: int) -> None:
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    began = fleet.start_ms - 600_000
    fleet.run(first, "ann", util=90.0, parent_pid=parent, started=began)
    fleet.run(second, "ann", parent_pid=parent, started=began + apart_s * 1000)
    assert len(of_rule(RULE, fleet, lake)) == count


def test_a_child_belongs_to_its_parent_whenever_it_was_started(lake: Lake) -> None:
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=90.0, pid=600, parent_pid=1)
    fleet.run(second, "ann", fleet.between(0.2), parent_pid=600)
    assert only_of(RULE, fleet, lake).gpus == ("GPU-h1-1",)


@pytest.mark.parametrize(("minutes", "count"), [(60, 0), (65, 1)])
def test_a_job_of_an_hour_may_still_be_loading(lake: Lake, minutes: int, count: int) -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2)
    fleet.run(gpus, "ann", fleet.between(-minutes / 1440), util=(90.0, 0.0), slurm_job_id="7")
    assert len(of_rule(RULE, fleet, lake)) == count


@pytest.mark.parametrize(("least", "most", "count"), [(0.4, 90, 1), (0.6, 90, 0), (0, 5.5, 1), (0, 4.5, 0)])
def test_unused_and_used_are_means_over_all_of_the_time(lake: Lake, least: float, most: float, count: int) -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2)
    blip = fleet.wave(least * 10, period_h=10 / 6, on_h=1 / 6)
    fleet.run(gpus, "ann", util=(most, blip), slurm_job_id="7")
    assert len(of_rule(RULE, fleet, lake)) == count


def test_a_gpu_that_worked_before_the_window_was_of_use(lake: Lake) -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    early = fleet.wave(90, period_h=72, on_h=24)
    fleet.run(gpus, "ann", util=(90.0, early), slurm_job_id="7")
    assert of_rule(RULE, fleet, lake, since="2026-11-19") == []


def test_a_gpu_that_was_never_measured_is_not_unused(lake: Lake) -> None:
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.run([first, second], "ann", util=(90.0, 0.0), slurm_job_id="7")
    second.override(fleet.always, gpu_util_pct=None, gpu_util_max_pct=None)
    assert of_rule(RULE, fleet, lake) == []


def test_processes_of_their_own_under_one_claim_are_told_apart(lake: Lake) -> None:
    """A group's claim on two GPUs: what idles on the second has nothing to do with the first."""
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.claim([first, second], "ann", 0, claim_id="42", scheduler="csv")
    for gpu, util, pid in ((first, 90.0, 11), (second, 0.0, 12)):
        fleet.run(gpu, None, util=util, pid=pid, parent_pid=1)
    found = only_of(RULE, fleet, lake)
    assert (found.job, found.reclaimable_gpus) == ("claim:42", ("GPU-h1-1",))
    # nobody knows whose the process is, so that it is never ended
    assert found.next_command.startswith("ssh h1 nvidia-smi")


def test_what_also_runs_on_the_busy_gpu_is_not_ended(lake: Lake) -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, claim_id="42", scheduler="csv")
    fleet.run(gpus, None, util=(90.0, 0.0), pid=11, parent_pid=1)
    found = only_of(RULE, fleet, lake)
    assert (found.reclaimable_gpus, found.next_command.split()[2]) == ((), "nvidia-smi")
