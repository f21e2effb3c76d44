"""Workers that are killed again and again: every interval keeps its rows, and one without is counted."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from agent.supervise import workers
from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import totals_by
from fallow.errors import DriverError
from tests.agent.simulation import START_MS
from tests.fakes.nvml import Fault, Gpu, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.supervise.supervisor import Supervisor
    from tests.agent.simulation import SimulatedHost

    Simulated = Callable[..., SimulatedHost]

AGO_S = 20.0


def two_gpus(*faults: Fault) -> Scenario:
    gpus = tuple(Gpu(f"GPU-{name}", util=constant(60)) for name in "ab")
    return Scenario(gpus, START_MS - round(AGO_S * 1000), faults)


def kill(supervisor: Supervisor) -> None:
    worker = supervisor._fleet._worker  # noqa: SLF001
    if worker is not None:
        os.kill(worker.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)


def missed(host: SimulatedHost) -> int:
    return sum(row["missed_intervals"] for row in host.rows("agent"))


def test_a_worker_that_is_killed_again_and_again_costs_no_row(simulated: Simulated) -> None:
    host = simulated(two_gpus())
    for number in range(5):
        host.at(3.4 + 4 * number, kill)
    host.run(26, interval="2s")
    for gpu in ("GPU-a", "GPU-b"):
        rows = host.of(gpu)
        assert len(rows) == 13
        assert {row["health"] for row in rows} == {"ok"}
        # the ring reaches over the whole interval; its pace is learnt anew
        assert all(row["gpu_util_pct"] == 60 and row["gpu_util_coverage_ratio"] > 0.9 for row in rows)
    assert missed(host) == 0
    assert len(host.events("worker_restart")) == 5
    assert host.events("gpu_wedged") == []


def three_kinds() -> Scenario:
    """One whose ring tells of the past, an idle one whose ring is silent, and one without a ring."""
    gpus = (Gpu("GPU-a", util=constant(60)), Gpu("GPU-b", util=constant(0)), Gpu("GPU-c", util=constant(60)))
    no_ring = Fault("not_supported", gpu=2, function="nvmlDeviceGetSamples")
    return Scenario(gpus, START_MS - round(AGO_S * 1000), (no_ring,))


def assert_honest(host: SimulatedHost) -> dict[str, list[float]]:
    """No GPU is ok where none of its interval was observed, and a row of such time has no number; when those begin."""
    unknown: dict[str, list[float]] = {}
    for row in host.rows("gpu"):
        if row["health"] == "unknown":
            unknown.setdefault(row["gpu"], []).append((row["time"] - START_MS) / 1000)
            told = ("gpu", "host", "time", "interval_ms", "offset_ms", "health", "util_source")
            assert {value for name, value in row.items() if name not in told} == {None}
        else:
            assert row["gpu_util_coverage_ratio"] > 0
    return unknown


def test_the_health_of_time_without_a_worker_is_unknown(simulated: Simulated) -> None:
    host = simulated(three_kinds())
    for number in range(3):
        host.at(3.4 + 4 * number, kill)
    host.run(14)
    # the driver's rates, read once a second, say nothing of the second in which a worker begins to read them
    assert assert_honest(host) == {"GPU-b": [3, 7, 11], "GPU-c": [3, 4, 7, 8, 11, 12]}
    assert [len(host.of(f"GPU-{name}")) for name in "abc"] == [14] * 3
    assert {each["detail"] for each in host.events("worker_restart")} == {
        "the NVML worker ended with signal 9 (SIGKILL); a new one is started"
    }
    assert [kind for kind in host.kinds() if kind.startswith("gpu_")] == [], "no GPU is to blame"


def test_the_health_of_time_without_an_agent_is_unknown(simulated: Simulated) -> None:
    host = simulated(three_kinds())
    host.at(5.2, lambda supervisor: supervisor.stop())
    host.run(3600)
    host.clock.sleep(2.9)
    host.run(5)
    assert assert_honest(host) == {"GPU-b": [4, 5, 6, 7], "GPU-c": [4, 5, 6, 7]}
    states = totals_by(load_ledger(host.lake, LedgerSettings()).segments, "gpu")["GPU-b"].state_ms
    known = {state: time_ms for state, time_ms in states.items() if time_ms}
    assert known == {"free": 6_000, "unknown": 2_000}, "a gap of up to three intervals is bridged, as where rows lack"


def test_what_a_new_worker_finds_is_not_the_state_of_the_interval_before(simulated: Simulated) -> None:
    reset = Fault("reset_required", gpu=0, function="nvmlDeviceGetPowerUsage", start_s=AGO_S + 6.1)
    host = simulated(two_gpus(reset))
    host.at(5.4, kill)
    host.run(8)
    assert [row["health"] for row in host.of("GPU-a")] == ["ok"] * 4 + ["unknown"] + ["reset_required"] * 3
    assert {row["health"] for row in host.of("GPU-b")} == {"ok"}


def test_after_a_release_the_health_is_unknown_until_the_driver_answers(simulated: Simulated) -> None:
    dying = Fault("crash", function="nvmlInit", start_s=AGO_S + 4, end_s=AGO_S + 8.5)
    host = simulated(two_gpus(dying))
    host.at(2.5, lambda supervisor: supervisor._fleet.release())  # noqa: SLF001
    host.at(5.5, lambda supervisor: supervisor._fleet.resume())  # noqa: SLF001
    host.run(12)
    found = [row["health"] for row in host.of("GPU-a")]
    assert found == [
        "ok",
        *["released"] * 3,
        *["unknown"] * (found.count("unknown")),
        *["ok"] * (found.count("ok") - 1),
    ]
    assert found.count("unknown") > 0


def test_intervals_without_a_worker_are_counted(simulated: Simulated) -> None:
    """Whatever starts dies at once; rows of a GPU that is missing are no rows of the others."""
    dying = Fault("crash", function="nvmlInit", start_s=AGO_S + 4, end_s=AGO_S + 20)
    host = simulated(two_gpus(dying), agent__expected_gpus="3")
    host.at(6.4, kill)
    host.run(30)
    assert len(host.of("fakehost/gpu-2")) == 30
    assert 30 - len(host.of("GPU-b")) == missed(host) > 5
    starts = len(host.events("worker_restart"))
    assert starts <= 10 + 30 / 5 + 1, "never in a hot loop"
    assert host.of("GPU-b")[-1]["health"] == "ok"


def test_a_python_that_cannot_start_the_worker_is_not_a_broken_driver(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "module_command", lambda *_: [sys.executable, "-P", "-m", "no_such_package"])
    with pytest.raises(DriverError, match="Python cannot start the NVML worker") as refused:
        simulated(two_gpus()).run(4)
    assert "install fallow for this Python" in refused.value.hint
