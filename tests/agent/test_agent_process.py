"""The agent as an operator runs it: processes, signals and the machine's clock (clock faults: test_faults.py)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from agent.spool.spool import Spool
from agent.supervise.workers import WorkerClient, WorkerHungError
from tests.agent.conftest import wait_until
from tests.conftest import REPOSITORY
from tests.fakes.files import FaultyFiles
from tests.fakes.nvml import Fault, Gpu, Process, Scenario, constant, library_folder, ms_ago, standard_fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.agent.conftest import FakeHost

    MakeHost = Callable[[Scenario], FakeHost]
    from collections.abc import Callable
    from typing import Any


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
        waiting = "SELECT count(*) FROM row WHERE name = ? AND seq > (SELECT coalesce(max(batch), 0) FROM segment)"
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


def test_a_driver_that_cannot_be_used_is_one_sentence(fake_host: MakeHost) -> None:
    finished = fake_host(two_gpus(Fault("driver_not_loaded"))).run("--for", "1s")
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "modprobe nvidia" in finished.stderr
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


def waiting_rows(host: FakeHost) -> int:
    with closing(Spool(str(host.spool))) as spool:
        return spool.count()


@pytest.mark.long
def test_an_agent_whose_lake_hangs_samples_on_and_ends_when_it_is_told_to(
    fake_host: Callable[[Scenario], FakeHost],
) -> None:
    host = fake_host(Scenario((Gpu("GPU-a", util=constant(60)),), ms_ago(20)))
    host.environment.update(FaultyFiles.environment_of(host.folder / "page", library_folder()))
    host.environment["FALLOW_AGENT_PUBLISH_EVERY"] = "1s"
    mount = FaultyFiles(host.folder / "page")
    agent = host.start("--interval", "1s")
    try:
        wait_until(lambda: len(host.rows("gpu")) >= 2)
        with mount.below(host.folder / "lake", "hang"):
            wait_until(lambda: mount.count > 0)
            before = waiting_rows(host)
            wait_until(lambda: waiting_rows(host) >= before + 6)
            agent.terminate()
            assert agent.wait(60) == 0, "it waits for no thread that hangs"
            assert waiting_rows(host) > before
            times = [row["time"] for row in host.rows("gpu")]
    finally:
        agent.kill()
        agent.wait()
    assert host.run("--interval", "1s", "--for", "1s").returncode == 0
    rows = host.rows("gpu")
    found = [row["time"] for row in rows]
    assert len(set(found)) == len(found) > len(times) + 3
    assert min(after - earlier for earlier, after in pairwise(found)) == 1000
    kinds = [row["kind"] for row in host.rows("event")]
    assert "agent_killed" not in kinds
    assert kinds.count("agent_stop") == 2


INTERVAL_MS = 25
TICKS = 600
WARM = 150
GROWTH_BYTES = 1_000_000
"""Over the ticks after the first 150: one row of one GPU that is kept by mistake in every tick takes more."""


@pytest.fixture
def seen(
    fake_host: Callable[[Scenario], FakeHost], sleeper: subprocess.Popen[bytes]
) -> tuple[list[dict[str, Any]], list[int]]:
    """The agent's own rows after a run, and the descriptors of supervisor and worker while it ran."""
    host = fake_host(standard_fleet(ms_ago(60), [sleeper.pid]))
    fast_agent = ["-m", "tests.agent.fast_agent", host.lake.root, str(host.spool), str(INTERVAL_MS), str(TICKS)]
    agent = subprocess.Popen([sys.executable, "-W", "error", *fast_agent], cwd=REPOSITORY, env=host.environment)
    try:
        descriptors = _watch(agent)
        assert agent.wait(timeout=240) == 0
    finally:
        agent.kill()
        agent.wait()
    return host.rows("agent"), descriptors


@pytest.mark.long
def test_memory_and_descriptors_stay_flat(seen: tuple[list[dict[str, Any]], list[int]]) -> None:
    rows, descriptors = seen
    assert len(rows) >= TICKS * 2 // 3, "it missed too many intervals to tell"
    for process in ("supervisor", "worker"):
        resident = [row[f"{process}_rss_bytes"] for row in rows[WARM:]]
        tenth = len(resident) // 10
        tenths = [statistics.median(resident[start : start + tenth]) for start in range(0, 10 * tenth, tenth)]
        # a leak raises every tenth of the run; what is loaded once, late on a busy machine, raises one of them
        growth = 9 * statistics.median(later - earlier for earlier, later in pairwise(tenths))
        assert growth < GROWTH_BYTES, f"the {process} grew by {growth:,.0f} bytes in {len(resident)} ticks"
    # a publisher or a look at /proc holds some for a moment: a leak raises the least of them
    quarter = len(descriptors) // 4  # the first one sees the agent start
    assert min(descriptors[-quarter:]) <= min(descriptors[quarter : 2 * quarter]), f"descriptors leak: {descriptors}"


def _watch(agent: subprocess.Popen[bytes]) -> list[int]:
    """Descriptors of both processes, several times a second, while both are there."""
    counts = []
    while agent.poll() is None:
        time.sleep(0.2)
        try:
            both = [psutil.Process(agent.pid), *_workers(agent.pid)]
            if len(both) == 2:
                counts.append(sum(process.num_fds() for process in both))
        except psutil.Error:  # it has just ended
            continue
    return counts


def _workers(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "agent.nvml.worker" in child.cmdline()]
