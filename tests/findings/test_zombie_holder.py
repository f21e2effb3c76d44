"""The rule `zombie_holder`: whose process has outlived its purpose, by what it is told, and what ends it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analytics.rules.zombie_holder import ZOMBIE_HOLDER
from fallow import schema
from tests.findings.one_rule import found, found_in
from tests.findings.scenarios.builder import H100, T_END, Fleet, Gpu
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from fallow.lake import Lake

RULE = ZOMBIE_HOLDER
HOUR_MS = 3_600_000


def orphan(fleet: Fleet, days: float) -> Any:
    return np.where(fleet.between(-days), 1.0, 4000.0)


PARENT_GONE = orphan(Fleet(3), 2.95)


def idle(days: float, **columns: Any) -> tuple[Fleet, list[Gpu]]:
    """Two GPUs of one process each; ann's ran kernels until so many days before the end, bob's still does."""
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=np.where(fleet.between(-days), 0, 90), mem_gb=40, cpu_util_pct=1.0, **columns)
    train(fleet, second, "bob", job="2002")
    return fleet, [first, second]


def test_a_process_whose_parent_went() -> None:
    fleet, (first, _) = idle(2, parent_pid=orphan(Fleet(3), 2))
    (each,) = found(RULE, fleet)
    pid = first.stays[0].columns["pid"]
    assert (each.subject, each.holder, each.gpus, each.reclaimable) == ("parent gone: ann", "ann", (first.uuid,), True)
    assert each.next_command == f"ssh h1 kill {pid}"
    assert each.gpu_hours == pytest.approx(48)
    numbers = each.evidence.numbers
    assert (numbers["why"], numbers["pids"], numbers["idle_h"]) == ("parent gone", str(pid), 48)
    assert numbers["cpu_util_mean_pct"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "service",
    [
        {"command": "vllm"},
        {"arguments": "python3 -m sglang.launch_server"},
        {"command": "Xorg", "kind": "graphics"},
        {"command": "nvidia-cuda-mps", "kind": "mps"},
        {"command": "nv-hostengine"},
        {"container_id": "c1"},
        {"pod": "p", "namespace": "n"},
    ],
)
def test_services_and_containers_are_no_orphans(service: dict[str, str]) -> None:
    assert found(RULE, idle(2, parent_pid=PARENT_GONE, **service)[0]) == []


def test_what_had_parent_one_from_the_start_may_be_a_daemon() -> None:
    assert found(RULE, idle(2, parent_pid=1)[0]) == []


@pytest.mark.parametrize(("hours", "fires"), [(23.5, False), (24, True)])
@pytest.mark.parametrize("columns", [{"parent_pid": PARENT_GONE}, {"arguments": "python3 -m ipykernel_launcher"}])
def test_a_day_without_a_kernel_is_wanted(hours: float, columns: dict[str, Any], *, fires: bool) -> None:
    assert bool(found(RULE, idle(hours / 24, **columns)[0])) == fires


def test_a_job_that_has_ended() -> None:
    fleet, gpus = idle(1.5, slurm_job_id="1001", slurm_account="lab")
    fleet.claim(gpus[:1], "ann", 0, -1, claim_id="1001", account="lab")
    (each,) = found(RULE, fleet)
    assert (each.subject, each.job) == ("job ended: ann", "slurm:1001")
    assert (
        each.next_command == f"ssh h1 kill {gpus[0].stays[0].columns['pid']}"
    )  # the job is gone: scancel does nothing
    assert (each.since_ms, each.gpu_hours) == (T_END - 24 * HOUR_MS, pytest.approx(24))


def test_claims_are_read_once_a_day_for_all_hosts(lake: Lake) -> None:
    """As everything else reads them: the hosts' own files are not opened again once the day is kept."""
    fleet, gpus = idle(1.5, slurm_job_id="1001")
    for number in range(8):
        (other,) = fleet.host(f"n{number}", H100, 1)
        fleet.claim([other], "bob", 0, claim_id=f"20{number}")
    fleet.claim(gpus[:1], "ann", 0, -1, claim_id="1001")
    (before,) = found_in(RULE, fleet.write(lake))
    for path in Path(lake.root, "claim").rglob("*.parquet"):
        times = path.stat()
        path.write_bytes(bytes(times.st_size))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    (after,) = found_in(RULE, lake)
    assert after == before


@pytest.mark.parametrize(("ended_min", "fires"), [(10, False), (15, True)])
def test_a_job_is_given_its_epilog(ended_min: float, *, fires: bool) -> None:
    fleet, gpus = idle(1.5, slurm_job_id="1001")
    fleet.claim(gpus[:1], "ann", 0, -ended_min / 1440, claim_id="1001")
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize("last_day", [None, 9])
def test_a_job_that_runs_is_none(last_day: float | None) -> None:
    fleet, gpus = idle(2, slurm_job_id="1001")
    fleet.claim(gpus[:1], "ann", 0, last_day, claim_id="1001")
    assert found(RULE, fleet) == []


def test_a_job_that_no_claim_knows_has_not_ended() -> None:
    assert found(RULE, idle(2, slurm_job_id="1001")[0]) == []


def test_a_notebook_in_a_hub() -> None:
    fleet, _ = idle(2, pod="jupyter-ann", namespace="hub", container_id="c1")
    (each,) = found(RULE, fleet)
    assert (each.subject, each.next_command) == ("notebook idle: ann", "kubectl delete pod -n hub jupyter-ann")
    assert each.notes == ("a notebook's unsaved results are lost with its kernel: ask first",)


def test_one_process_with_a_purpose_keeps_the_gpu() -> None:
    fleet, (first, _) = idle(2, parent_pid=PARENT_GONE)
    fleet.run(first, "eve", fleet.between(-2.5), mem_gb=4)
    assert found(RULE, fleet) == []


def test_a_service_beside_it_does_not() -> None:
    fleet, (first, _) = idle(2, parent_pid=PARENT_GONE)
    fleet.run(first, "root", mem_gb=0.1, kind="graphics", command="Xorg", parent_pid=1)
    (each,) = found(RULE, fleet)
    assert each.evidence.numbers["process_count"] == 1


def test_a_process_that_works_elsewhere_is_not_ended() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    util = [np.where(fleet.between(-2), 0, 90), 90.0]
    fleet.run(gpus, "ann", util=util, mem_gb=40, cpu_util_pct=1.0, one_process=True, parent_pid=orphan(fleet, 2))
    (each,) = found(RULE, fleet)
    assert (each.gpus, each.reclaimable, "ps" in each.next_command) == ((gpus[0].uuid,), False, True)
    assert "the same processes are also at work on 1 GPU" in each.confidence.failed


def test_a_past_window_is_only_looked_at() -> None:
    (each,) = found(RULE, idle(2.9, parent_pid=PARENT_GONE)[0], until="2026-11-18")
    assert each.next_command.startswith("ssh h1 nvidia-smi --query-compute-apps")


def test_the_columns_that_it_reads_are_there() -> None:
    assert {"parent_pid", "arguments", "pod_labels", "container_id"} <= set(schema.PROCESS_DAY.names)
