"""The rule `imbalance`: GPUs of one job that lag behind the others for hours."""

from __future__ import annotations

import numpy as np
import pytest

from tests.findings.one_rule import of_rule, only_of
from tests.findings.scenarios.builder import A100_80, H100, Fleet

RULE = "imbalance"


def test_who_lags_behind_and_by_how_much() -> None:
    fleet = Fleet(1)
    gpus = fleet.host("h1", A100_80, 3)
    fleet.run(gpus, "ann", util=(90.0, 90.0, 30.0), slurm_job_id="7", power_w=100.0)
    found = only_of(RULE, fleet)
    assert (found.gpus, found.subject, found.holder, found.gpu_hours) == (("GPU-h1-2",), "slurm:7", "ann", 24.0)
    numbers = found.evidence.numbers
    assert (numbers["busiest_gpu_util_mean_pct"], numbers["idlest_gpu_util_mean_pct"]) == (90.0, 30.0)
    assert numbers["spread"] == pytest.approx(2 / 3)
    assert (numbers["uneven_h"], numbers["judged_h"], numbers["waiting_gpu_hours"]) == (24, 24, pytest.approx(16.0))
    assert found.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0,GPU-h1-1,GPU-h1-2 -s puc -c 30"
    assert found.reclaimable_gpus == ()
    assert (
        "SM activity is not measured on every GPU of the job, so a spinning kernel counts as work"
        in found.confidence.failed
    )


@pytest.mark.parametrize(("low", "count"), [(40.0, 1), (45.0, 0), (50.0, 0)])
def test_the_spread_has_to_exceed_a_half(low: float, count: int) -> None:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", A100_80, 2), "ann", util=(90.0, low), slurm_job_id="7")
    assert len(of_rule(RULE, fleet)) == count


@pytest.mark.parametrize(("hours", "count"), [(2, 0), (3, 1)])
def test_it_has_to_last_for_three_hours_in_a_row(hours: int, count: int) -> None:
    fleet = Fleet(1)
    slow = np.where(fleet.every(6, hours), 20.0, 90.0)
    fleet.run(fleet.host("h1", A100_80, 2), "ann", util=(90.0, slow), slurm_job_id="7")
    assert len(of_rule(RULE, fleet)) == count


@pytest.mark.parametrize(("hours", "count"), [(5, 0), (6, 1)])
def test_it_must_not_be_rare(hours: int, count: int) -> None:
    fleet = Fleet(1)
    slow = np.where(fleet.every(24, hours), 20.0, 90.0)
    fleet.run(fleet.host("h1", A100_80, 2), "ann", util=(90.0, slow), slurm_job_id="7")
    assert len(of_rule(RULE, fleet)) == count


def test_sm_activity_tells_more_than_utilization_where_it_is_known() -> None:
    fleet = Fleet(1)
    for gpu, sm in zip(fleet.host("h1", H100, 2), (80.0, 20.0), strict=True):
        fleet.run(gpu, "ann", util=98.0, sm=sm, slurm_job_id="7")
    numbers = only_of(RULE, fleet).evidence.numbers
    assert (numbers["busiest_gpu_sm_active_mean_pct"], numbers["idlest_gpu_sm_active_mean_pct"]) == (80.0, 20.0)


def test_an_unused_gpu_is_another_rules() -> None:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", A100_80, 2), "ann", util=(90.0, 0.0), slurm_job_id="7")
    assert of_rule(RULE, fleet) == []


@pytest.mark.parametrize("columns", [{"command": "vllm"}, {"command": "python3", "arguments": "python3 -m vllm.serve"}])
def test_servers_are_left_out(columns: dict[str, str]) -> None:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", A100_80, 2), "svc", util=(90.0, 20.0), pod="p", namespace="n", **columns)
    assert of_rule(RULE, fleet) == []


def test_hours_before_the_window_do_not_count() -> None:
    fleet = Fleet(2)
    slow = np.where(fleet.between(0, 1), 20.0, 90.0)
    fleet.run(fleet.host("h1", A100_80, 2), "ann", util=(90.0, slow), slurm_job_id="7")
    assert of_rule(RULE, fleet, since="2026-11-19") == []
