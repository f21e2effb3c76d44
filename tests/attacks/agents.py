"""Agents as an operator runs them, over the test driver, for attacks: started, asked, killed, and what they leave in the lake."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from fallow.lake import Lake
from tests.agent.spooled import rows_of
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.nvml import library_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fakes.nvml import Scenario

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class AttackedHost:
    """One host: a name, a driver that plays a scenario, a spool, and the lake that it publishes to."""

    folder: Path
    name: str
    lake: Lake
    environment: dict[str, str]

    @classmethod
    def make(
        cls, folder: Path, scenario: Scenario, lake: Lake | None = None, name: str = "h1", **settings: str
    ) -> AttackedHost:
        """Settings are given as `section_key`; without a lake the host has one of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        played = scenario.environment(library_folder(), scenario.write(folder / "scenario"))
        named = {f"FALLOW_{each.upper()}": value for each, value in settings.items()}
        defaults = {
            "FALLOW_AGENT_INTERVAL": "1s",
            "FALLOW_AGENT_PUBLISH_EVERY": "2s",
            "FALLOW_AGENT_SPOOL": str(folder / "spool"),
        }
        own = lake or Lake.at(str(folder / "lake"))
        host = cls(folder, name, own, clean_environment(played | defaults | named))
        if lake is None:
            host.init_lake()
        return host

    @property
    def spool(self) -> Path:
        return Path(self.environment["FALLOW_AGENT_SPOOL"])

    def init_lake(self) -> None:
        """Makes the place a lake, as an operator does once."""
        self.fallow("lake", "init", "--lake", self.lake.root)

    def fallow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command on this host."""
        return subprocess.run(
            [sys.executable, "-m", "fallow", *arguments], capture_output=True, text=True, check=False, timeout=120,
            cwd=REPOSITORY, env=self.environment,
        )  # fmt: skip

    @contextlib.contextmanager
    def running(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """An agent of this host, asked to end when the block is left; its log is in `log`."""
        arguments = ["agent", "run", "--lake", self.lake.root, "--host", self.name, *flags]
        with (self.folder / "log").open("ab") as log:
            agent = subprocess.Popen(
                [sys.executable, "-m", "fallow", *arguments],
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env=self.environment,
            )
        try:
            yield agent
        finally:
            end(agent)

    def status(self) -> dict[str, Any]:
        """What `fallow agent status --json` says; empty where no agent answers."""
        answer = self.fallow("agent", "status", "--json")
        told: dict[str, Any] = json.loads(answer.stdout) if answer.stdout.startswith("{") else {}
        return told

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The visible rows of a table, times in milliseconds, sorted by time and GPU."""
        return rows_of(self.lake, table)

    def published(self) -> int:
        """How many GPU rows are in the lake now."""
        return len(self.rows("gpu"))


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks a process to end, and ends it where it does not."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_S)
        return
    process.kill()
    process.wait()


def until(true: Callable[[], object], what: str) -> None:
    """Returns once the condition holds; TimeoutError, which names what never happened, after a minute."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not happen within {_PATIENCE_S:g} s")
        time.sleep(0.1)


def worker_of(agent: subprocess.Popen[bytes]) -> int | None:
    """The process id of the agent's NVML worker; None while there is none."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(agent.pid).children():
            with contextlib.suppress(psutil.Error):
                if "agent.nvml.worker" in child.cmdline():
                    return child.pid
    return None


def intervals(rows: list[dict[str, Any]], interval_ms: int) -> tuple[int, int, int]:
    """Of one GPU's or host's rows: how many intervals lie between the first and the last, how many have a row, how many rows are too many."""
    times = Counter(row["time"] for row in rows)
    if not times:
        return 0, 0, 0
    return (max(times) - min(times)) // interval_ms + 1, len(times), sum(times.values()) - len(times)


def files_below(folder: Path) -> int:
    """Files of any kind below a folder."""
    return sum(len(files) for _, _, files in os.walk(folder))
