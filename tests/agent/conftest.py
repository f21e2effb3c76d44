"""A host with a fake driver: runs the agent against a scenario and reads what it left in the lake."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from agent.spool.spool import Spool
from fallow.lake import Lake
from tests.agent.lanes import PAST_S, STEP_MS, Lanes
from tests.agent.player import Player
from tests.agent.simulation import START_MS, SimulatedHost
from tests.agent.spooled import rows_of
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.clock import FakeClock
from tests.fakes.nvml import Scenario, library_folder
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fakes.nvml import Gpu

HOST = "fakehost"


@pytest.fixture(autouse=True)
def _own_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent points psutil at the /proc that it was given; the next test of this process is given the real one."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/proc")


@dataclass(frozen=True)
class FakeHost:
    """One host: a scenario that plays, a spool and a lake."""

    folder: Path
    environment: dict[str, str]

    @property
    def lake(self) -> Lake:
        place = self.folder / "lake"
        return Lake.at(str(place)) if place.is_file() else made_lake(place)

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def arguments(self, *extra: str) -> list[str]:
        places = ["--lake", self.lake.root, "--spool", str(self.spool), "--host", HOST]
        return [sys.executable, "-W", "error", "-m", "fallow", "agent", "run", *places, *extra]

    def run(self, *extra: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments(*extra),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd=REPOSITORY,
            env=self.environment,
        )

    def start(self, *extra: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments(*extra),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env=self.environment,
        )

    def once(self, *extra: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "fallow", "agent", "once", *extra]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY, env=self.environment
        )

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The visible rows of a table, times as integer milliseconds, sorted by time and GPU."""
        return rows_of(self.lake, name)


@pytest.fixture(scope="session")
def library() -> Path:
    return library_folder()


@pytest.fixture
def fake_host(tmp_path: Path, library: Path) -> Callable[[Scenario], FakeHost]:
    def make(scenario: Scenario) -> FakeHost:
        path = scenario.write(tmp_path / "scenario")
        (tmp_path / "sys").mkdir()
        own = {"FALLOW_AGENT_SYS": str(tmp_path / "sys"), "FALLOW_AGENT_HOST": HOST}
        return FakeHost(tmp_path, clean_environment(scenario.environment(library, path) | own))

    return make


@pytest.fixture
def simulated(
    tmp_path: Path, library: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., SimulatedHost]:
    """Makes a host whose time passes only while its agent waits."""

    def make(scenario: Scenario, **settings: str) -> SimulatedHost:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        return SimulatedHost(tmp_path, library, lake, scenario, monkeypatch, named)

    return make


@pytest.fixture
def lanes(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lanes]]:
    """Makes workers over scenarios that began PAST_S ago."""
    started: list[Lanes] = []
    monkeypatch.setattr("agent.supervise.workers._LONGEST_LOOK_S", 0.01)  # by the machine's clock

    def make(*gpus: Gpu, sys: Path | None = None, step_ms: int = STEP_MS, **options: Any) -> Lanes:
        scenario = Scenario(gpus, START_MS - round(PAST_S * 1000), **options)
        for name, value in scenario.environment(library, scenario.write(tmp_path / "scenario")).items():
            monkeypatch.setenv(name, value)
        clock = FakeClock(tmp_path, library, START_MS)
        started.append(Lanes(scenario, sys or tmp_path / "sys", clock, step_ms))
        return started[-1]

    yield make
    for each in started:
        each.worker.end(2)


@pytest.fixture
def player(library: Path, tmp_path: Path) -> Player:
    return Player(library, tmp_path)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A real process with a known command name, to stand for one on a GPU."""
    process = subprocess.Popen(["sleep", "600"])
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)  # its program is loaded
    yield process
    process.kill()
    process.wait()


def wait_until(true: Callable[[], object], timeout_s: float = 120) -> None:
    """Returns once the condition holds; fails the test where it never does."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def login_name() -> str:
    """The name under which /proc's owner of this process is known."""
    return str(psutil.Process(os.getpid()).username())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """An empty spool."""
    made = Spool(str(tmp_path / "spool"))
    yield made
    made.close()
