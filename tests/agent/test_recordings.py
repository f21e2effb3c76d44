"""A recording of a driver, replayed, answers as the driver did; a real H200 under known load shows what agents see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.simulation import START_MS, SimulatedHost
from tests.fakes.clock import FakeClock
from tests.fakes.nvml import GIB, Fault, Gpu, Process, Scenario, Steps, constant, record
from tests.fakes.nvml.capture import Capture
from tests.fakes.nvml.load_phases import load_phases
from tests.fakes.nvml.replay import FIRST_PID, replay
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.nvml.load_phases import LoadPhase

SECONDS = 5.0
AGO_S = 20.0
PID = 4_190_417
"""A process id that no number of a recording has by chance."""

NEW = Gpu(
    "GPU-secret-1",
    serial="1655555555555",
    util=Steps(tuple((t / 2, float(t * 37 % 101)) for t in range(200))),
    mem_used=Steps(((0, GIB), (AGO_S + 2, 3 * GIB))),
    power_w=Steps(tuple((float(t), 200.0 + t * 13 % 400) for t in range(100))),
    energy_offset_mj=10**11,
    throttled={"power_cap": Steps(((0, 0.5), (AGO_S + 3, 0)))},
    ecc_corrected=Steps(((0, 2), (AGO_S + 2.5, 5))),
    ecc_corrected_offset=40,
    gpm={2: constant(30), 10: Steps(((0, 10), (AGO_S + 2, 50)))},
    processes=(Process(PID, end_s=AGO_S + 3.5), Process(1)),
    nvlink_group=0,
)
OLD = Gpu("GPU-secret-2", model="NVIDIA A100", architecture=7, nvlink_group=0, row_remap=False, ecc=False)
REFUSED = (Fault("not_supported", 1, "nvmlDeviceGetPowerUsage"), Fault("unknown", 1, "nvmlDeviceGetTemperature", 22))


def recorded(library: Path, scenario: Scenario, folder: Path) -> Capture:
    """What the recorder, run as a program of its own, wrote of a scenario."""
    path, clock = folder / "recording.jsonl", FakeClock(folder, library, START_MS)
    environment = os.environ | clock.environment | scenario.environment(library, scenario.write(folder / "scenario"))
    command = [sys.executable, str(Path(record.__file__)), str(path), "--seconds", str(SECONDS)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as recorder:
        clock.until_ended(recorder)
    assert recorder.returncode == 0
    return Capture.read(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recording")


@pytest.fixture(scope="module")
def capture(library: Path, folder: Path) -> Capture:
    """Two cards, one busy with all there is, one older and half refused."""
    return recorded(library, Scenario((NEW, OLD), START_MS - round(AGO_S * 1000), REFUSED), folder)


@pytest.fixture(scope="module")
def again(library: Path, tmp_path_factory: pytest.TempPathFactory, capture: Capture) -> tuple[Scenario, Capture]:
    scenario = replay(capture, START_MS)
    return scenario, recorded(library, scenario, tmp_path_factory.mktemp("replay"))


OF_DEVICE = [
    "Name",
    "Architecture",
    "CudaComputeCapability",
    "MinorNumber",
    "PersistenceMode",
    "EccMode",
    "MigMode",
    "EnforcedPowerLimit",
    "MaxClockInfo(1)",
    "MaxClockInfo(2)",
    "PciInfo",
    "P2PStatus(1)",
    "Temperature",
]
STATIC = [
    *(f"nvmlDeviceGet{name}" for name in OF_DEVICE),
    "nvlinks",
    "nvmlGpmQueryDeviceSupport",
    *(f"field({number})" for number in (82, 142, 94, 230)),
]


@pytest.mark.parametrize("gpu", [0, 1])
def test_facts_and_refusals_are_the_same(capture: Capture, again: tuple[Scenario, Capture], gpu: int) -> None:
    def facts(which: Capture) -> dict[str, Any]:
        return {call: [(each.result, each.error) for each in which.answers(call, gpu)[:1]] for call in STATIC}

    assert facts(again[1]) == facts(capture)
    assert again[1].result("nvmlSystemGetDriverVersion", None) == "580.65.06"


@pytest.mark.usefixtures("capture")
def test_nothing_in_a_recording_names_the_machine(folder: Path) -> None:
    text = (folder / "recording.jsonl").read_text(encoding="utf-8")
    for secret in ("secret", "1655555555555", str(PID)):
        assert secret not in text
    assert len(text) * 60 / SECONDS < 400_000, "two cards for a minute"
    assert {"t_s", "call", "gpu"} <= set(json.loads(text.splitlines()[0]))


def test_counters_are_right_at_every_reading(capture: Capture) -> None:
    gpu = replay(capture, 0).gpus[0]
    energy = capture.values("nvmlDeviceGetTotalEnergyConsumption", 0)
    assert len(energy) >= SECONDS - 1
    for t_s, reading in energy:
        assert gpu.energy_mj(round(t_s * 1000)) == pytest.approx(reading, abs=2)
    for t_s, reading in capture.values("field(74)", 0):
        assert gpu.throttled_ns("power_cap", round(t_s * 1000)) == pytest.approx(reading, abs=2e6)


def test_ring_readings_and_averages_are_played_again(capture: Capture, again: tuple[Scenario, Capture]) -> None:
    """Seconds since each recording's start; the second began a moment after its scenario."""
    scenario, second = again
    gpu, late_us = scenario.gpus[0], second.about["begun_us"] - scenario.start_ms * 1000
    first = {(round(t_s * 1e6), value) for t_s, value in capture.ring(0, 1)}
    played = [(round(t_s * 1e6) + late_us, value) for t_s, value in second.ring(0, 1)]
    assert len(played) >= 72
    assert set(played) <= first
    assert second.answers("nvmlDeviceGetSamples(1)", 1)[0].error == 6, "an idle ring has nothing new"
    for call, steps, unit in (
        ("nvmlDeviceGetPowerUsage", gpu.power_w, 1000),
        ("field(3)", gpu.ecc_corrected, 1),
        ("nvmlDeviceGetMemoryInfo_v2", gpu.mem_used, 1),
    ):
        for t_s, result in second.values(call, 0):
            value = result[2] if isinstance(result, list) else result
            near = {steps.at(t_s + late_us / 1e6 + shift) * unit for shift in (-0.05, 0, 0.05)}
            assert any(value == pytest.approx(each, abs=1) for each in near), (call, t_s)
    assert [count for _, count in capture.values("nvmlDeviceGetComputeRunningProcesses_v3", 0)][-1] == 1
    assert {process.pid for process in gpu.processes} == {FIRST_PID, FIRST_PID + 1}
    averages = {values["10"] for _, values in second.values("nvmlGpmMetricsGet", 0)}
    assert all(9.9 <= value <= 50.1 for value in averages)
    assert max(averages) == pytest.approx(50, abs=0.1)


def test_calls_that_began_to_fail_fail_again(capture: Capture) -> None:
    faults = {(fault.kind, fault.gpu, fault.function): fault for fault in replay(capture, 0).faults}
    assert ("not_supported", 1, "nvmlDeviceGetPowerUsage") in faults
    assert 0 < faults["unknown", 1, "nvmlDeviceGetTemperature"].start_s < SECONDS


def test_the_agent_sees_a_replay_as_it_saw_the_card(
    capture: Capture, simulated: Callable[[Scenario], SimulatedHost]
) -> None:
    host = simulated(replay(capture, START_MS)).run(3)
    gpu = host.scenario.gpus[0]
    rows = host.of(gpu.uuid)
    assert [row["health"] for row in rows] == ["ok"] * 3
    for row in rows:
        assert row["energy_mj"] == gpu.energy_mj(row["time"] + row["interval_ms"] + row["read_delay_ms"] - START_MS)


DATA = Path(__file__).parent / "data"
H200 = Capture.read(DATA / "h200.jsonl")
PHASES = load_phases(DATA / "h200-phases.jsonl")
HALF_BUSY = next(phase for phase in PHASES if phase.name.endswith("250 ms every 500 ms"))
ROUNDED_DOWN_PCT = 1.5
"""Each entry of the ring is a whole percent, rounded down, and the last one of a phase may be partly of the next."""


def in_phase(moments: list[tuple[float, float]], phase: LoadPhase, settled_s: float) -> list[float]:
    begin_s, end_s = phase.within(H200)
    return [value for t_s, value in moments if begin_s + settled_s < t_s <= end_s]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, library: Path) -> SimulatedHost:
    """The agent after the recording was played again."""
    folder = tmp_path_factory.mktemp("h200")
    with pytest.MonkeyPatch.context() as patched:
        settings = {"agent.stalled_after": "5s"}
        scenario = replay(H200, START_MS)
        host = SimulatedHost(folder, library, made_lake(folder / "lake"), scenario, patched, settings)
        return host.run(80, "1s")


@pytest.fixture(scope="module")
def seen(watched: SimulatedHost) -> list[tuple[float, float]]:
    """The agent's utilization of every second of the recording: end of the second, percent."""
    rows = watched.of(watched.scenario.gpus[0].uuid)
    assert all(row["util_source"] == "samples" for row in rows[3:])
    return [((row["time"] + row["interval_ms"] - START_MS) / 1000, row["gpu_util_pct"]) for row in rows]


def test_the_ring_keeps_a_sample_every_200_ms_also_of_an_idle_gpu() -> None:
    stamps = [t_s for t_s, _ in H200.ring(0, 1)]
    assert all(0.19 < late - early < 0.21 for early, late in pairwise(stamps))
    assert mean(value for t_s, value in H200.ring(0, 1) if t_s < 2) == 0


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_ring_and_agent_tell_the_busy_time(phase: LoadPhase, seen: list[tuple[float, float]]) -> None:
    ring = mean(in_phase([(t_s, float(value)) for t_s, value in H200.ring(0, 1)], phase, 0.2))
    assert ring == pytest.approx(phase.busy_pct, abs=ROUNDED_DOWN_PCT)
    assert mean(in_phase(seen, phase, 1.2)) == pytest.approx(phase.busy_pct, abs=2 * ROUNDED_DOWN_PCT)


def test_one_reading_a_second_of_the_drivers_average_does_not() -> None:
    rates = [(t_s, gpu) for t_s, (gpu, _) in H200.values("nvmlDeviceGetUtilizationRates", 0)]
    assert HALF_BUSY.busy_pct > 48
    assert max(in_phase(rates, HALF_BUSY, 1.0)) < 5


def test_a_kernel_that_only_spins_is_a_stalled_suspect_and_no_other_work_is(watched: SimulatedHost) -> None:
    (begun,), (over,) = watched.events("stalled_suspect"), watched.events("stalled_over")
    begin_s, end_s = next(phase for phase in PHASES if phase.name == "one block, always").within(H200)
    assert begin_s + 4 < (begun["time"] - START_MS) / 1000 < end_s
    assert end_s < (over["time"] - START_MS) / 1000 < end_s + 3
    assert "power_w 127." in begun["detail"]
