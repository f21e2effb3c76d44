"""What goes wrong with drivers and GPUs: each gap explains itself, nobody else is blamed, and no number is invented."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import totals_by
from fallow.errors import DriverError
from tests.agent.simulation import START_MS
from tests.fakes.nvml import GIB, Fault, Gpu, MigInstance, Process, Scenario, Steps, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.simulation import SimulatedHost

    Simulated = Callable[..., SimulatedHost]

AGO_S = 20.0
NUMBERS = ("gpu_util_pct", "mem_used_bytes", "power_w", "energy_mj", "temperature_c", "process_count")


def two_gpus(*faults: Fault) -> Scenario:
    """Two busy GPUs; the faults' times count from the start of the simulation."""
    own = (Process(os.getpid(), mem_bytes=GIB),)
    gpus = tuple(Gpu(f"GPU-{name}", util=constant(60), processes=own) for name in "ab")
    return Scenario(gpus, START_MS - round(AGO_S * 1000), tuple(_later(fault) for fault in faults))


def _later(fault: Fault) -> Fault:
    end_s = None if fault.end_s is None else AGO_S + fault.end_s
    start_s = 0 if fault.start_s == 0 else AGO_S + fault.start_s
    return Fault(fault.kind, fault.gpu, fault.function, start_s, end_s, fault.delay_s)


def healths(host: SimulatedHost, gpu: str) -> list[str]:
    """The healths of a GPU's rows, without repetitions."""
    found: list[str] = []
    for row in host.of(gpu):
        found += [row["health"]] if found[-1:] != [row["health"]] else []
        if row["health"] in ("lost", "missing", "reset_required", "wedged", "driver_down"):
            assert {row[name] for name in NUMBERS} == {None}
        elif row["gpu_util_pct"] is not None:
            assert row["gpu_util_pct"] == pytest.approx(60, abs=0.5)
    return found


def assert_unharmed(host: SimulatedHost, gpu: str, count: int) -> None:
    """Every interval has a row that knows everything."""
    rows = host.of(gpu)
    assert len({row["time"] for row in rows}) == len(rows) == count
    assert {row["health"] for row in rows} == {"ok"}
    assert all(row["gpu_util_pct"] == pytest.approx(60, abs=0.5) for row in rows)


@pytest.mark.parametrize("kind", ["lost", "reset_required", "unplug"])
def test_a_lost_gpu_is_its_own_state_and_nobody_elses(simulated: Simulated, kind: str) -> None:
    host = simulated(two_gpus(Fault(kind, gpu=0, start_s=3.5, end_s=6))).run(12)
    assert_unharmed(host, "GPU-b", 12)
    if kind == "unplug":  # a library finds it again when it is loaded anew
        assert healths(host, "GPU-a") == ["ok", "lost"]
        return
    assert healths(host, "GPU-a") == ["ok", kind, "ok"]
    assert [row["health"] for row in host.of("GPU-a")].count(kind) == 3
    assert host.kinds() == ["agent_start", f"gpu_{kind}", "gpu_ok", "counters_restarted", "agent_stop"]


def test_a_call_that_blocks_for_ever_wedges_one_gpu_and_the_rest_lives_on(simulated: Simulated) -> None:
    host = simulated(two_gpus(Fault("hang", gpu=0, function="nvmlDeviceGetPowerUsage", start_s=4))).run(14)
    assert healths(host, "GPU-a") == ["ok", "wedged"]
    assert_unharmed(host, "GPU-b", 14)
    (event,) = host.events("gpu_wedged")
    assert event["gpu"] == "GPU-a"
    assert "nvmlDeviceGetPowerUsage" in event["detail"]


def test_a_blocked_call_that_returns_brings_the_gpu_back(simulated: Simulated) -> None:
    host = simulated(two_gpus(Fault("hang", gpu=0, function="nvmlDeviceGetTemperature", start_s=3, end_s=8))).run(12)
    assert healths(host, "GPU-a") == ["ok", "wedged", "ok"]
    assert host.kinds() == ["agent_start", "gpu_wedged", "gpu_ok", "agent_stop"]


@pytest.mark.parametrize(("function", "seen"), [(None, []), ("nvmlDeviceGetName", ["wedged"])])
def test_a_gpu_that_blocks_from_the_start_blinds_nobody_else(
    simulated: Simulated, function: str | None, seen: list[str]
) -> None:
    """One that does not even say its UUID has an event and no rows."""
    host = simulated(two_gpus(Fault("hang", gpu=0, function=function))).run(4)
    assert_unharmed(host, "GPU-b", 4)
    assert healths(host, "GPU-a") == seen
    assert len(host.events("gpu_wedged")) == 1


@pytest.mark.parametrize("call", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetUUID"])
def test_a_gpu_whose_calls_crash_the_library_is_healthy_once_they_have_returned(
    simulated: Simulated, call: str
) -> None:
    """It is retried after 6 and after 12 intervals; every row makes the first call, only a new worker the second."""
    faults = [Fault("crash", gpu=0, function=name, start_s=3.5, end_s=12) for name in {call, "nvmlDeviceGetPowerUsage"}]
    host = simulated(two_gpus(*faults)).run(26)
    assert healths(host, "GPU-a") == ["ok", "wedged", "ok"]
    assert_unharmed(host, "GPU-b", 26)
    assert host.kinds() == ["agent_start", "worker_restart", "gpu_wedged", "worker_restart", "gpu_ok", "agent_stop"]
    first, wedged, vain, back = (event for event in host.rows("event") if event["gpu"] == "GPU-a")
    died = "ended the NVML worker with signal 11 (SIGSEGV)"
    assert first["detail"] == (
        "the NVML worker ended with signal 11 (SIGSEGV) in nvmlDeviceGetPowerUsage; a new one is started"
    )
    assert wedged["detail"] == f"{call} {died}"
    assert vain["detail"] == f"tried again: {call} {died}; a new NVML worker starts"
    assert back["detail"].startswith("it answers again: nvmlDeviceGetPowerUsage, which ended the NVML worker with")
    assert f"{call}, which {died}, ha" in back["detail"]


def test_a_gpu_is_degraded_until_the_call_that_crashed_is_needed_again(simulated: Simulated) -> None:
    """The rates are asked for while the ring is silent: the GPU is idle, then busy, then idle."""
    util = Steps(((0, 0), (AGO_S + 9, 60), (AGO_S + 18, 0)))
    crash = Fault("crash", gpu=0, function="nvmlDeviceGetUtilizationRates", start_s=AGO_S + 3.5, end_s=AGO_S + 6)
    host = simulated(Scenario((Gpu("GPU-a", util=util),), START_MS - round(AGO_S * 1000), (crash,))).run(24)
    states = [state for state, _ in groupby(row["health"] for row in host.of("GPU-a"))]
    assert states == ["ok", "unknown", "wedged", "degraded", "ok"]
    assert host.kinds()[1:-1] == ["worker_restart", "gpu_degraded", "gpu_wedged", "gpu_degraded", "gpu_ok"]
    assert all(event["detail"].endswith("has not been called since") for event in host.events("gpu_degraded"))


def test_a_gpu_that_blocks_again_when_it_is_tried_was_never_healthy(simulated: Simulated) -> None:
    faults = (
        Fault("hang", gpu=0, function="nvmlDeviceGetPowerUsage", start_s=3, end_s=8),
        Fault("hang", gpu=0, function="nvmlDeviceGetUUID", start_s=3, end_s=13),
    )
    host = simulated(two_gpus(*faults)).run(18)
    assert healths(host, "GPU-a") == ["ok", "wedged", "ok"]
    assert host.kinds() == ["agent_start", "gpu_wedged", "worker_restart", "gpu_ok", "agent_stop"]
    assert "nvmlDeviceGetUUID did not return for 0.4 s" in host.events("worker_restart")[0]["detail"]
    assert host.events("gpu_ok")[0]["time"] - START_MS > 13_000


@pytest.mark.parametrize("kind", ["mismatch", "driver_not_loaded"])
def test_a_driver_that_went_away_is_loaded_again(simulated: Simulated, kind: str) -> None:
    scenario = two_gpus(Fault(kind, start_s=4, end_s=8))
    split = Gpu("GPU-m", gpm_supported=True, mig=(MigInstance("MIG-1", gi=1, util=constant(60)),))
    host = simulated(replace(scenario, gpus=(*scenario.gpus, split))).run(18)
    assert healths(host, "GPU-a") == healths(host, "GPU-b") == ["ok", "driver_down", "ok"]
    # as its GPU; averages need two moments
    assert healths(host, "MIG-1") == ["ok", "driver_down", "unknown", "ok"]
    assert [each for each in host.kinds() if each.startswith("driver")] == ["driver_down", "driver_up"]


@pytest.mark.parametrize(("kind", "event"), [("not_supported", "call_unsupported"), ("no_permission", "call_denied")])
def test_a_call_that_is_refused_is_null_and_said_once(simulated: Simulated, kind: str, event: str) -> None:
    host = simulated(two_gpus(Fault(kind, gpu=0, function="nvmlDeviceGetPowerUsage"))).run(4)
    assert all(row["power_w"] is None and row["health"] == "ok" for row in host.of("GPU-a"))
    assert all(row["power_w"] is not None for row in host.of("GPU-b"))
    (said,) = host.events(event)
    assert said["gpu"] == "GPU-a"
    assert "nvmlDeviceGetPowerUsage" in said["detail"]


def test_without_a_ring_the_rates_are_read_and_the_coverage_says_how_little_that_is(simulated: Simulated) -> None:
    host = simulated(two_gpus(Fault("not_supported", gpu=0, function="nvmlDeviceGetSamples"))).run(8, interval="4s")
    for row in host.of("GPU-a"):
        assert row["util_source"] == "rates"
        assert row["gpu_util_pct"] == pytest.approx(60, abs=1)
        assert 0.08 <= row["gpu_util_coverage_ratio"] <= 0.25
    assert all(row["util_source"] == "samples" for row in host.of("GPU-b"))


@pytest.mark.parametrize("kind", ["unknown", "timeout"])
def test_a_call_that_fails_again_and_again_degrades_its_gpu(simulated: Simulated, kind: str) -> None:
    host = simulated(two_gpus(Fault(kind, gpu=0, function="nvmlDeviceGetTemperature"))).run(6)
    assert [row["health"] for row in host.of("GPU-a")][-3:] == ["degraded"] * 3
    assert {row["temperature_c"] for row in host.of("GPU-a")} == {None}
    assert_unharmed(host, "GPU-b", 6)
    assert host.kinds() == ["agent_start", "gpu_degraded", "agent_stop"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("driver_not_loaded"), "modprobe nvidia"),
        (Fault("mismatch"), "different versions"),
        (Fault("no_permission", function="nvmlInit"), "device nodes"),
        (Fault("hang", function="nvmlInit"), "nvmlInit does not return"),
    ],
)
def test_a_driver_that_cannot_be_used_ends_the_run(simulated: Simulated, fault: Fault, words: str) -> None:
    with pytest.raises(DriverError, match=words):
        simulated(two_gpus(fault)).run(1)


def wave(on_ms: int, period_ms: int) -> Steps:
    """A square wave of full load for two minutes."""
    edges = range(0, 120_000, period_ms)
    return Steps(tuple(point for edge in edges for point in ((edge / 1000, 100.0), ((edge + on_ms) / 1000, 0.0))))


def test_short_kernels_are_measured_as_short_as_they_are(simulated: Simulated) -> None:
    waves = [(100, 1000), (50, 1000), (100, 600), (70, 2500), (400, 1000)]
    gpus = tuple(Gpu(f"GPU-{on}-{period}", util=wave(on, period)) for on, period in waves)
    host = simulated(Scenario(gpus, START_MS - 20_000)).run(10, interval="5s")
    watched = set()
    for row in host.rows("gpu"):
        close = row["gpu_util_pct"] == pytest.approx(host.gpu(row["gpu"]).util.mean(*host.span_s(row)), abs=1.5)
        # until two samples have followed each other the ring's pace is not known, and the coverage says so
        assert close or row["gpu_util_coverage_ratio"] < 0.9, row["gpu"]
        if row["gpu_util_coverage_ratio"] >= 0.97:
            watched.add(row["gpu"])
    assert len(watched) >= 4


def test_a_slow_driver_costs_coverage_and_never_makes_a_zero(simulated: Simulated) -> None:
    slow = Fault("slow", function="nvmlDeviceGetSamples", start_s=2, end_s=7, delay_s=0.45)
    host = simulated(two_gpus(slow), agent__call_timeout="500ms").run(12, interval="2s")
    for row in host.rows("gpu"):
        assert row["health"] in ("ok", "degraded"), "slow calls are no wedge"
        assert row["gpu_util_pct"] is None or row["gpu_util_pct"] == pytest.approx(60)
        assert not row["gpu_util_zero_ratio"]


def test_a_refused_process_list_is_unknown_and_not_nobody(simulated: Simulated) -> None:
    denied = Fault("no_permission", function="nvmlDeviceGetMPSComputeRunningProcesses")
    mps = (Process(os.getpid(), mem_bytes=GIB, kind="mps"),)
    scenario = Scenario((Gpu("GPU-a", util=constant(0), processes=mps),), START_MS - 20_000, (denied,))
    assert {row["process_count"] for row in simulated(scenario).run(3).rows("gpu")} == {None}


def test_a_gpu_that_is_lost_while_the_worker_is_replaced_stays_in_the_account(simulated: Simulated) -> None:
    host = simulated(two_gpus(Fault("lost", gpu=0, start_s=4), Fault("mismatch", start_s=6, end_s=8))).run(16)
    assert healths(host, "GPU-a") == ["ok", "lost", "driver_down", "lost"]
    assert healths(host, "GPU-b")[-1] == "ok"
    states = totals_by(load_ledger(host.lake, LedgerSettings()).segments, "gpu")["GPU-a"].state_ms
    assert states["unavailable"] >= 8_000


def test_a_gpu_lost_between_two_runs_is_still_accounted_for(simulated: Simulated) -> None:
    host = simulated(two_gpus(Fault("lost", gpu=0, start_s=12))).run(2)
    host.clock.sleep(12)
    host.run(2)
    assert [row["health"] for row in host.of("GPU-a")] == ["ok", "ok", "lost", "lost"]
