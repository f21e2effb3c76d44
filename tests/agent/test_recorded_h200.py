"""A real H200 under work whose busy time is known (benchmarks/hardware.sh), recorded: driver, ring and agent beside the truth."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import pytest

from tests.agent.simulation import START_MS, SimulatedHost
from tests.fakes.nvml.capture import Capture
from tests.fakes.nvml.load_phases import load_phases
from tests.fakes.nvml.replay import replay
from tests.lakes import made_lake

if TYPE_CHECKING:
    from tests.fakes.nvml.load_phases import LoadPhase

DATA = Path(__file__).parent / "data"
CAPTURE = Capture.read(DATA / "h200.jsonl")
PHASES = load_phases(DATA / "h200-phases.jsonl")
HALF_BUSY = next(phase for phase in PHASES if phase.name.endswith("250 ms every 500 ms"))
ROUNDED_DOWN_PCT = 1.5
"""Each entry of the ring is a whole percent, rounded down, and the last one of a phase may be partly of the next."""


def in_phase(moments: list[tuple[float, float]], phase: LoadPhase, settled_s: float) -> list[float]:
    begin_s, end_s = phase.within(CAPTURE)
    return [value for t_s, value in moments if begin_s + settled_s < t_s <= end_s]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, library: Path) -> list[tuple[float, float]]:
    """The agent's utilization of every second of the recording played again: end of the second, percent."""
    folder = tmp_path_factory.mktemp("h200")
    with pytest.MonkeyPatch.context() as patched:
        scenario = replay(CAPTURE, START_MS)
        host = SimulatedHost(folder, library, made_lake(folder / "lake"), scenario, patched)
        host.run(80, "1s")
        rows = host.of(scenario.gpus[0].uuid)
    assert all(row["util_source"] == "samples" for row in rows[3:])
    return [((row["time"] + row["interval_ms"] - START_MS) / 1000, row["gpu_util_pct"]) for row in rows]


def test_the_ring_keeps_a_sample_every_200_ms_also_of_an_idle_gpu() -> None:
    stamps = [t_s for t_s, _ in CAPTURE.ring(0, 1)]
    assert all(0.19 < late - early < 0.21 for early, late in pairwise(stamps))
    assert mean(value for t_s, value in CAPTURE.ring(0, 1) if t_s < 2) == 0


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_ring_and_agent_tell_the_busy_time(phase: LoadPhase, seen: list[tuple[float, float]]) -> None:
    ring = mean(in_phase([(t_s, float(value)) for t_s, value in CAPTURE.ring(0, 1)], phase, 0.2))
    assert ring == pytest.approx(phase.busy_pct, abs=ROUNDED_DOWN_PCT)
    assert mean(in_phase(seen, phase, 1.2)) == pytest.approx(phase.busy_pct, abs=2 * ROUNDED_DOWN_PCT)


def test_one_reading_a_second_of_the_drivers_average_does_not() -> None:
    rates = [(t_s, gpu) for t_s, (gpu, _) in CAPTURE.values("nvmlDeviceGetUtilizationRates", 0)]
    assert HALF_BUSY.busy_pct > 48
    assert max(in_phase(rates, HALF_BUSY, 1.0)) < 5
