"""Where a careless agent would invent a number: each of these once did."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import totals_by
from tests.agent.conftest import wait_until
from tests.fakes.nvml import GIB, Fault, Gpu, Process, Scenario, Steps, constant, ms_ago

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.conftest import FakeHost

    MakeHost = Callable[[Scenario], FakeHost]


def wave(on_ms: int, period_ms: int) -> Steps:
    """A square wave of full load for two minutes."""
    edges = range(0, 120_000, period_ms)
    return Steps(tuple(point for edge in edges for point in ((edge / 1000, 100.0), ((edge + on_ms) / 1000, 0.0))))


def of(host: FakeHost, gpu: str) -> list[dict[str, Any]]:
    return [row for row in host.rows("gpu") if row["gpu"] == gpu]


def test_short_kernels_are_measured_as_short_as_they_are(fake_host: MakeHost) -> None:
    waves = [(100, 1000), (50, 1000), (100, 600), (70, 2500), (400, 1000)]
    gpus = tuple(Gpu(f"GPU-{on}-{period}", util=wave(on, period)) for on, period in waves)
    scenario = Scenario(gpus, ms_ago(20))
    host = fake_host(scenario)
    assert host.run("--interval", "5s", "--for", "10s").returncode == 0
    watched = set()
    for row in host.rows("gpu"):
        gpu = next(gpu for gpu in gpus if gpu.uuid == row["gpu"])
        begin = (row["time"] - scenario.start_ms) / 1000
        close = row["gpu_util_pct"] == pytest.approx(gpu.util.mean(begin, begin + 5), abs=1.5)
        # until two samples have followed each other the ring's pace is not known, and the coverage says so
        assert close or row["gpu_util_coverage_ratio"] < 0.9, gpu.uuid
        if row["gpu_util_coverage_ratio"] >= 0.97:
            watched.add(gpu.uuid)
    assert len(watched) >= 4


def test_a_slow_driver_costs_coverage_and_never_makes_a_zero(fake_host: MakeHost) -> None:
    slow = Fault("slow", function="nvmlDeviceGetSamples", start_s=22, end_s=27, delay_s=0.45)
    host = fake_host(Scenario((Gpu("GPU-a", util=constant(100)),), ms_ago(20), (slow,)))
    assert host.run("--interval", "2s", "--for", "12s").returncode == 0
    for row in host.rows("gpu"):
        assert row["gpu_util_pct"] is None or row["gpu_util_pct"] == pytest.approx(100)
        assert not row["gpu_util_zero_ratio"]


def test_slow_calls_are_no_wedge(fake_host: MakeHost) -> None:
    slow = Fault("slow", function="nvmlDeviceGetTemperature", delay_s=0.4)
    gpus = tuple(Gpu(f"GPU-{number}", util=constant(50)) for number in range(4))
    host = fake_host(Scenario(gpus, ms_ago(20), (slow,)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "1s"
    assert host.run("--interval", "4s", "--for", "8s").returncode == 0
    assert {row["health"] for row in host.rows("gpu")} == {"ok"}
    assert {row["gpu"] for row in host.rows("gpu")} == {gpu.uuid for gpu in gpus}


def test_a_refused_process_list_is_unknown_and_not_nobody(fake_host: MakeHost) -> None:
    denied = Fault("no_permission", function="nvmlDeviceGetMPSComputeRunningProcesses")
    mps = (Process(os.getpid(), mem_bytes=GIB, kind="mps"),)
    host = fake_host(Scenario((Gpu("GPU-a", util=constant(0), processes=mps),), ms_ago(20), (denied,)))
    assert host.run("--interval", "1s", "--for", "3s").returncode == 0
    assert {row["process_count"] for row in host.rows("gpu")} == {None}


def test_a_gpu_lost_from_the_start_is_found_when_it_comes_back(fake_host: MakeHost) -> None:
    lost = Fault("lost", gpu=0, start_s=0, end_s=26)
    gpus = (Gpu("GPU-a", util=constant(60)), Gpu("GPU-b", util=constant(60)))
    host = fake_host(Scenario(gpus, ms_ago(20), (lost,)))
    assert host.run("--interval", "1s", "--for", "16s").returncode == 0
    assert of(host, "GPU-a")[-1]["health"] == "ok"
    assert of(host, "GPU-a")[-1]["gpu_util_pct"] == pytest.approx(60, abs=0.5)
    assert len(of(host, "GPU-b")) == 16
    kinds = [row["kind"] for row in host.rows("event")]
    assert kinds.count("gpu_lost") == 1


def test_a_gpu_that_is_lost_while_the_worker_is_replaced_stays_in_the_account(fake_host: MakeHost) -> None:
    lost = Fault("lost", gpu=0, start_s=24)
    gpus = (Gpu("GPU-a", util=constant(60)), Gpu("GPU-b", util=constant(60)))
    host = fake_host(Scenario(gpus, ms_ago(20), (lost, Fault("mismatch", start_s=26, end_s=28))))
    assert host.run("--interval", "1s", "--for", "16s").returncode == 0
    assert of(host, "GPU-a")[-1]["health"] == "lost"
    assert of(host, "GPU-b")[-1]["health"] == "ok"
    states = totals_by(load_ledger(host.lake, LedgerSettings()).stretches, "gpu")["GPU-a"].state_ms
    assert states["unavailable"] >= 8_000


@pytest.mark.parametrize("function", [None, "nvmlDeviceGetName"])
def test_a_gpu_that_blocks_from_the_start_blinds_nobody_else(fake_host: MakeHost, function: str | None) -> None:
    hang = Fault("hang", gpu=0, function=function)
    gpus = (Gpu("GPU-a", util=constant(60)), Gpu("GPU-b", util=constant(60)))
    host = fake_host(Scenario(gpus, ms_ago(20), (hang,)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "1s"
    finished = host.run("--interval", "1s", "--for", "4s")
    assert finished.returncode == 0, finished.stderr
    assert {row["health"] for row in of(host, "GPU-b")} == {"ok"}
    assert all(row["health"] == "wedged" and row["gpu_util_pct"] is None for row in of(host, "GPU-a"))
    assert "gpu_wedged" in [row["kind"] for row in host.rows("event")]


def test_a_worker_that_does_not_run_says_nothing_of_its_gpus(fake_host: MakeHost) -> None:
    host = fake_host(Scenario((Gpu("GPU-a", util=constant(60)),), ms_ago(20)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "1s"
    agent = host.start("--interval", "1s", "--for", "10s")
    wait_until((host.spool / "spool.sqlite").exists)
    time.sleep(3)
    (worker,) = [child.pid for child in psutil.Process(agent.pid).children() if "agent.nvml.worker" in child.cmdline()]
    os.kill(worker, signal.SIGSTOP)
    time.sleep(4)
    os.kill(worker, signal.SIGCONT)
    assert agent.wait(60) == 0
    assert {row["health"] for row in host.rows("gpu")} == {"ok"}
    assert "gpu_wedged" not in [row["kind"] for row in host.rows("event")]
    assert host.rows("gpu")[-1]["gpu_util_pct"] == pytest.approx(60, abs=0.5)


def test_a_gpu_lost_between_two_runs_is_still_accounted_for(fake_host: MakeHost) -> None:
    lost = Fault("lost", gpu=0, start_s=32)
    gpus = (Gpu("GPU-a", util=constant(60)), Gpu("GPU-b", util=constant(60)))
    host = fake_host(Scenario(gpus, ms_ago(20), (lost,)))
    begun_s = time.monotonic()
    assert host.run("--interval", "1s", "--for", "2s").returncode == 0
    time.sleep(max(0.0, 12.5 - (time.monotonic() - begun_s)))
    assert host.run("--interval", "1s", "--for", "2s").returncode == 0
    assert [row["health"] for row in of(host, "GPU-a")] == ["ok", "ok", "lost", "lost"]
