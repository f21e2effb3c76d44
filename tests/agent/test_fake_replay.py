"""A recording of a driver, played again, answers as the driver did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.simulation import START_MS
from tests.fakes.clock import FakeClock
from tests.fakes.nvml import GIB, Fabric, Fault, Gpu, Platform, Process, Scenario, Steps, constant, record
from tests.fakes.nvml.capture import Capture
from tests.fakes.nvml.replay import FIRST_PID, replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.simulation import SimulatedHost

SECONDS = 5.0
AGO_S = 20.0
PID = 4_190_417
"""A process id that no number of a recording has by chance."""


def original() -> Scenario:
    """Two cards, one busy with all there is, one older and half refused."""
    new = Gpu(
        "GPU-secret-1",
        serial="1655555555555",
        util=Steps(tuple((t / 2, float(t * 37 % 101)) for t in range(200))),
        mem_util=constant(20),
        mem_used=Steps(((0, GIB), (AGO_S + 2, 3 * GIB))),
        power_w=Steps(tuple((float(t), 200.0 + t * 13 % 400) for t in range(100))),
        energy_offset_mj=10**11,
        throttled={"power_cap": Steps(((0, 0.5), (AGO_S + 3, 0)))},
        ecc_corrected=Steps(((0, 2), (AGO_S + 2.5, 5))),
        ecc_corrected_offset=40,
        gpm={2: constant(30), 10: Steps(((0, 10), (AGO_S + 2, 50)))},
        processes=(Process(PID, end_s=AGO_S + 3.5), Process(1)),
        nvlink_group=0,
        nvlink_tx_mib_per_s=constant(512),
        fabric=Fabric("7f1c6f3a-0d4e-4c55-9d0b-2a4f6b8c1e33", 4),
        platform=Platform("SN-SECRET", 3, 1, 2),
    )
    old = Gpu(
        "GPU-secret-2", model="NVIDIA A100", architecture=7, nvlink_group=0, numa_node=0, row_remap=False, ecc=False
    )
    faults = (Fault("not_supported", 1, "nvmlDeviceGetPowerUsage"), Fault("unknown", 1, "nvmlDeviceGetTemperature", 22))
    return Scenario((new, old), START_MS - round(AGO_S * 1000), faults)


def recorded(library: Path, scenario: Scenario, folder: Path, name: str) -> Capture:
    """What the recorder, run as a program of its own, wrote of a scenario."""
    path = folder / f"{name}.jsonl"
    clock = FakeClock(folder, library, START_MS)
    environment = os.environ | clock.environment | scenario.environment(library, scenario.write(folder / name))
    command = [sys.executable, str(Path(record.__file__)), str(path), "--seconds", str(SECONDS)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as recorder:
        clock.until_ended(recorder)
    assert recorder.returncode == 0
    return Capture.read(path)


@pytest.fixture(scope="module")
def capture(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return recorded(library, original(), tmp_path_factory.mktemp("recording"), "first")


@pytest.fixture(scope="module")
def again(library: Path, tmp_path_factory: pytest.TempPathFactory, capture: Capture) -> tuple[Scenario, Capture]:
    folder = tmp_path_factory.mktemp("replay")
    scenario = replay(capture, START_MS)
    return scenario, recorded(library, scenario, folder, "second")


STATIC = (
    "nvmlDeviceGetName", "nvmlDeviceGetArchitecture", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetMaxClockInfo(1)", "nvmlDeviceGetMaxClockInfo(2)", "nvmlDeviceGetPciInfo", "nvlinks",
    "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetPlatformInfo", "nvmlGpmQueryDeviceSupport",
    "nvmlDeviceGetTopologyCommonAncestor(1)", "nvmlDeviceGetP2PStatus(1)", "nvmlDeviceGetTemperature", "field(82)",
    "field(142)", "field(94)", "field(230)",
)  # fmt: skip


@pytest.mark.parametrize("gpu", [0, 1])
def test_facts_and_refusals_are_the_same(capture: Capture, again: tuple[Scenario, Capture], gpu: int) -> None:
    def facts(which: Capture) -> dict[str, Any]:
        return {call: [(each.result, each.error) for each in which.answers(call, gpu)[:1]] for call in STATIC}

    assert facts(again[1]) == facts(capture)
    assert again[1].result("nvmlSystemGetDriverVersion", None) == "580.65.06"


def test_nothing_in_a_recording_names_the_machine(library: Path, tmp_path: Path) -> None:
    recorded(library, original(), tmp_path, "third")
    text = (tmp_path / "third.jsonl").read_text(encoding="utf-8")

    for secret in ("secret", "SECRET", "1655555555555", "7f1c6f3a", str(PID)):
        assert secret not in text
    assert len(text) * 60 / SECONDS < 400_000, "two cards for a minute"
    assert {"t_s", "call", "gpu"} <= set(json.loads(text.splitlines()[0]))


def test_counters_are_right_at_every_reading(capture: Capture) -> None:
    scenario = replay(capture, 0)
    energy = capture.values("nvmlDeviceGetTotalEnergyConsumption", 0)
    throttled = capture.values("field(74)", 0)

    assert len(energy) >= SECONDS - 1
    for t_s, reading in energy:
        assert scenario.energy_mj(0, round(t_s * 1000)) == pytest.approx(reading, abs=2)
    for t_s, reading in throttled:
        assert scenario.throttled_ns(0, "power_cap", round(t_s * 1000)) == pytest.approx(reading, abs=2e6)


def test_the_ring_is_played_entry_by_entry(capture: Capture, again: tuple[Scenario, Capture]) -> None:
    # Seconds since each recording's start; the second began a moment after its scenario.
    scenario, second = again
    late_us = second.about["begun_us"] - scenario.start_ms * 1000
    first = {(round(t_s * 1e6), value) for t_s, value in capture.ring(0, 1)}
    played = [(round(t_s * 1e6) + late_us, value) for t_s, value in second.ring(0, 1)]

    assert len(played) >= 72
    assert set(played) <= first
    assert second.answers("nvmlDeviceGetSamples(1)", 1)[0].error == 6, "an idle ring has nothing new"


def test_readings_follow_the_recording(capture: Capture, again: tuple[Scenario, Capture]) -> None:
    scenario, second = again
    gpu = scenario.gpus[0]
    late_s = second.about["begun_us"] / 1e6 - scenario.start_ms / 1000

    for call, steps, unit in (
        ("nvmlDeviceGetPowerUsage", gpu.power_w, 1000),
        ("field(3)", gpu.ecc_corrected, 1),
        ("nvmlDeviceGetMemoryInfo_v2", gpu.mem_used, 1),
    ):
        for t_s, result in second.values(call, 0):
            value = result[2] if isinstance(result, list) else result
            moment = t_s + late_s
            near = {steps.at(moment + shift) * unit for shift in (-0.05, 0, 0.05)}
            assert any(value == pytest.approx(each, abs=1) for each in near), (call, t_s)
    assert capture.values("field(5)", 0)[-1][1] == 45
    assert [count for _, count in capture.values("nvmlDeviceGetComputeRunningProcesses_v3", 0)][-1] == 1
    assert {process.pid for process in gpu.processes} == {FIRST_PID, FIRST_PID + 1}


def test_gpm_averages_are_played_again(capture: Capture, again: tuple[Scenario, Capture]) -> None:
    seen = {values["10"] for _, values in again[1].values("nvmlGpmMetricsGet", 0)}

    assert all(9.9 <= value <= 50.1 for value in seen)
    assert max(seen) == pytest.approx(50, abs=0.1)
    assert {values["2"] for _, values in capture.values("nvmlGpmMetricsGet", 0)} == {30.0}
    assert [each.error for each in capture.answers("nvmlGpmSampleGet", 1)][:1] == [3]


def test_calls_that_began_to_fail_fail_again(capture: Capture) -> None:
    faults = {(fault.kind, fault.gpu, fault.function): fault for fault in replay(capture, 0).faults}

    assert ("not_supported", 1, "nvmlDeviceGetPowerUsage") in faults
    begun_s = faults["unknown", 1, "nvmlDeviceGetTemperature"].start_s
    assert 0 < begun_s < SECONDS


def test_the_agent_sees_a_replay_as_it_saw_the_card(
    capture: Capture, simulated: Callable[[Scenario], SimulatedHost]
) -> None:
    host = simulated(replay(capture, START_MS)).run(3)
    rows = host.of(host.scenario.gpus[0].uuid)
    assert [row["health"] for row in rows] == ["ok"] * 3
    for row in rows:
        read_ms = row["time"] + row["interval_ms"] + row["read_delay_ms"] - START_MS
        assert row["energy_mj"] == host.scenario.energy_mj(0, read_ms)
