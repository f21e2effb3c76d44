"""Workers that are killed again and again: every interval keeps its rows, and one without is counted."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from agent.supervise import workers
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
    for number in range(15):
        host.at(3.4 + 4 * number, kill)
    host.run(66, interval="2s")
    for gpu in ("GPU-a", "GPU-b"):
        rows = host.of(gpu)
        assert len(rows) == 33
        assert {row["health"] for row in rows} == {"ok"}
        # the ring reaches over the whole interval; its pace is learnt anew
        assert all(row["gpu_util_pct"] == 60 and row["gpu_util_coverage_ratio"] > 0.9 for row in rows)
    assert missed(host) == 0
    assert len(host.events("worker_restart")) == 15
    assert host.events("gpu_wedged") == []


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
