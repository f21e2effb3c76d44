"""The rule `input_starved`: what a GPU waits for, and whether it does better when that is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.findings.one_rule import of_rule, only_of
from tests.findings.scenarios.builder import GB, H100, Fleet

RULE = "input_starved"


def fleet_of(util: Any, *, days: float = 2, load: dict[str, float] | None = None, **columns: Any) -> Fleet:
    """One GPU at work on a host at a limit."""
    fleet = Fleet(days)
    (gpu,) = fleet.host("h1", H100, 1)
    fleet.run(gpu, "ann", util=util, mem_gb=40, slurm_job_id="7", **columns)
    gpu.host.load(fleet.always, **(load or {}))
    return fleet


@pytest.mark.parametrize(
    ("load", "waits_for", "command"),
    [
        ({"cpu_util_pct": 90.0}, "the host's CPUs", "ssh h1 top -b -n 1"),
        ({"cpu_pressure_pct": 40.0}, "the host's CPUs", "ssh h1 top -b -n 1"),
        ({"io_pressure_pct": 20.0, "disk_read_bytes_per_s": 1e8}, "the disks", "ssh h1 iostat -x 5 3"),
        ({"cpu_util_pct": 89.0, "cpu_pressure_pct": 39.0, "io_pressure_pct": 19.0}, None, None),
    ],
)
def test_the_resource_at_its_limit(load: dict[str, float], waits_for: str | None, command: str | None) -> None:
    found = of_rule(RULE, fleet_of(40.0, load=load))
    assert [(each.evidence.numbers["waits_for"], each.next_command) for each in found] == (
        [(waits_for, command)] if waits_for else []
    )


def test_the_numbers_and_what_is_not_sure() -> None:
    found = only_of(RULE, fleet_of(40.0, load={"cpu_util_pct": 97.0}))
    numbers = found.evidence.numbers
    assert (found.gpu_hours, numbers["starved_gpu_hours"], numbers["share_of_middling_hours"]) == (48.0, 48.0, 1.0)
    assert (numbers["gpu_util_mean_pct"], numbers["gpu_util_mean_otherwise_pct"]) == (40.0, None)
    assert numbers["cpu_util_mean_pct"] == pytest.approx(97.0)
    assert (
        "the host's CPUs: at the limit in every hour, so that there is no other hour to compare with"
        in found.confidence.failed
    )
    assert not found.reclaimable


@pytest.mark.parametrize(("util", "count"), [(9.0, 0), (11.0, 1), (69.0, 1), (71.0, 0)])
def test_utilization_is_middling(util: float, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(util, load={"cpu_util_pct": 97.0}))) == count


@pytest.mark.parametrize(("days", "count"), [(1, 0), (25 / 24, 1)])
def test_it_has_to_cost_more_than_a_gpu_day(days: float, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(40.0, days=days, load={"cpu_util_pct": 97.0}))) == count


@pytest.mark.parametrize(("otherwise", "count"), [(49.0, 0), (51.0, 1)])
def test_the_gpu_has_to_do_better_without_the_limit(otherwise: float, count: int) -> None:
    fleet = Fleet(3)
    (gpu,) = fleet.host("h1", H100, 1)
    busy = fleet.daily(0, 18)
    fleet.run(gpu, "ann", util=np.where(busy, 40.0, otherwise), mem_gb=40, slurm_job_id="7")
    gpu.host.load(busy, cpu_util_pct=97.0)
    found = of_rule(RULE, fleet)
    assert [each.evidence.numbers["gpu_util_mean_otherwise_pct"] for each in found] == [otherwise] * count


def test_a_steady_rate_alone_is_no_limit() -> None:
    assert of_rule(RULE, fleet_of(40.0, load={"net_receive_bytes_per_s": 1.2e9})) == []


@pytest.mark.parametrize(("cpu_pct", "count"), [(100.0, 0), (200.0, 1), (193.0, 1), (192.0, 0), (250.0, 0)])
def test_a_process_at_a_whole_number_of_cpus(cpu_pct: float, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(40.0, cpu_util_pct=cpu_pct))) == count


@pytest.mark.parametrize(("host_gb", "pcie", "count"), [(32.1, None, 0), (31.0, None, 1), (200, 3e9, 0), (200, 1e8, 1)])
def test_offload_is_told_by_host_memory_and_pcie(host_gb: float, pcie: float | None, count: int) -> None:
    load = {"cpu_util_pct": 97.0}
    fleet = fleet_of(40.0, load=load, cpu_util_pct=1650.0, host_mem_bytes=round(host_gb * GB))
    fleet.gpus[0].override(fleet.always, pcie_tx_bytes_per_s=pcie, pcie_rx_bytes_per_s=0.0 if pcie else None)
    assert len(of_rule(RULE, fleet)) == count


def test_other_work_on_the_host_is_a_doubt() -> None:
    fleet = Fleet(2)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=40.0, slurm_job_id="7")
    fleet.run(second, "bob", util=95.0, slurm_job_id="8")
    first.host.load(fleet.always, cpu_util_pct=97.0)
    assert "other workloads run on the same host and may cause the load" in only_of(RULE, fleet).confidence.failed
