"""The agent as an operator runs it: processes, signals and the machine's clock. What time does to it is in test_faults.py."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest

from agent.supervise.workers import WorkerClient, WorkerHungError
from tests.agent.conftest import wait_until
from tests.fakes.nvml import Fault, Gpu, Process, Scenario, constant, ms_ago

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.agent.conftest import FakeHost
    from tests.conftest import RunFallow

    MakeHost = Callable[[Scenario], FakeHost]


def two_gpus(*faults: Fault) -> Scenario:
    own = (Process(os.getpid()),)
    return Scenario(tuple(Gpu(f"GPU-{name}", util=constant(60), processes=own) for name in "ab"), ms_ago(20), faults)


def spooled(host: FakeHost, name: str) -> int:
    """Rows that wait to be published."""
    path = host.spool / "spool.sqlite"
    if not path.exists():
        return 0
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    try:
        waiting = "SELECT count(*) FROM row WHERE name = ? AND seq > (SELECT coalesce(max(batch), 0) FROM stretch)"
        return int(db.execute(waiting, (name,)).fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # the table is being made
    finally:
        db.close()


def known(host: FakeHost, name: str) -> int:
    """Rows that were published or will be."""
    return len(host.rows(name)) + spooled(host, name)


def rows_after(host: FakeHost) -> list[dict[str, Any]]:
    """The published rows of an agent that has ended; on a busy machine some may wait for the next start."""
    while spooled(host, "gpu"):
        assert host.run("--interval", "1s", "--for", "1s").returncode == 0
    return host.rows("gpu")


def kinds(host: FakeHost) -> list[str]:
    return [row["kind"] for row in host.rows("event")]


@pytest.fixture
def running(fake_host: MakeHost) -> Iterator[tuple[FakeHost, subprocess.Popen[bytes]]]:
    """An agent that has spooled its first rows."""
    host = fake_host(two_gpus())
    agent = host.start("--interval", "1s")
    wait_until(lambda: known(host, "gpu") >= 4)
    yield host, agent
    agent.kill()
    agent.wait()


def test_sigterm_publishes_and_ends_well(running: tuple[FakeHost, subprocess.Popen[bytes]]) -> None:
    host, agent = running
    second = host.run("--for", "1s")
    assert second.returncode == 1
    assert "another agent runs on the spool" in second.stderr
    agent.terminate()
    assert agent.wait(60) == 0
    rows = rows_after(host)
    assert len({(row["gpu"], row["time"]) for row in rows}) == len(rows) >= 4
    assert "agent_stop" in kinds(host)
    assert "agent_killed" not in kinds(host)


def test_a_driver_that_cannot_be_used_is_one_sentence(fake_host: MakeHost, run_fallow: RunFallow) -> None:
    host = fake_host(two_gpus(Fault("driver_not_loaded")))
    without = run_fallow("agent", "once", LD_LIBRARY_PATH="")
    for finished, words in ((host.run("--for", "1s"), "modprobe nvidia"), (without, "libnvidia-ml.so.1")):
        assert (finished.returncode, finished.stdout) == (1, "")
        assert words in finished.stderr
        assert len(finished.stderr.splitlines()) == 1


def test_an_unusable_interval_is_wrong_use(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus())
    finished = host.run("--interval", "10ms")
    assert finished.returncode == 2
    assert "too short" in finished.stderr
    assert not host.spool.exists()


@pytest.mark.long
def test_kill_9_loses_nothing_before_the_current_interval_and_doubles_nothing(
    running: tuple[FakeHost, subprocess.Popen[bytes]],
) -> None:
    host, agent = running
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    kept = known(host, "gpu")
    assert host.run("--interval", "1s", "--for", "2s").returncode == 0
    rows = rows_after(host)
    assert len({(row["gpu"], row["time"]) for row in rows}) == len(rows) > kept
    assert "agent_killed" in kinds(host)


@pytest.mark.long
def test_a_worker_that_starts_late_is_waited_for_and_one_that_stops_later_is_not(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that a driver call may take says nothing of how long a busy host takes to start a process."""
    scenario = two_gpus()
    for name, value in scenario.environment(library, scenario.write(tmp_path / "scenario")).items():
        monkeypatch.setenv(name, value)
    worker = WorkerClient(sys_path=str(tmp_path / "sys"))
    os.kill(worker.pid, signal.SIGSTOP)
    late = threading.Timer(2, os.kill, (worker.pid, signal.SIGCONT))
    late.start()
    try:
        assert "GPU-a" in json.dumps(worker.open(10))
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(WorkerHungError) as hung:
            worker.open(0.5)
        assert (hung.value.uuid, hung.value.call) == ("", ""), "it says nothing of any GPU"
    finally:
        late.cancel()
        os.kill(worker.pid, signal.SIGCONT)
        worker.end(2)


@pytest.mark.long
def test_a_call_that_blocks_is_noticed_by_the_machines_clock(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus(Fault("hang", gpu=0, function="nvmlDeviceGetPowerUsage", start_s=24)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "1s"
    assert host.run("--interval", "1s", "--for", "10s").returncode == 0
    rows = rows_after(host)
    assert [row["health"] for row in rows if row["gpu"] == "GPU-a"][-1] == "wedged"
    assert "gpu_wedged" in kinds(host)
