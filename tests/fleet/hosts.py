"""A fleet's hosts: each has a driver, spool, clock and agent; operators and accidents start and end the agents."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.clock.flowing import FlowingClock
from tests.fakes.nvml import Gpu, Scenario, constant, library_folder
from tests.fleet.expected import ExpectedRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GPUS = 2
_LOOK_MS = 20.0
_ENDS_WITHIN_S = 60.0


@dataclass
class FleetHost:
    name: str
    folder: Path
    clock: FlowingClock
    expected: ExpectedRows
    environment: dict[str, str]
    agent: subprocess.Popen[bytes] | None = None
    sessions: set[int] = field(default_factory=set)
    """Of all agents so far: what they have started may outlive them."""

    @classmethod
    def make(cls, folder: Path, name: str, start_ms: int, interval_ms: int, settings: Mapping[str, str]) -> FleetHost:
        """A host whose clock stands at `start_ms`; settings are environment variables."""
        folder.mkdir(parents=True)
        clock = FlowingClock(folder / "clock", library_folder(), start_ms, _LOOK_MS)
        gpus = tuple(
            Gpu(f"GPU-{name}-{index}", util=constant(60), pci_bus_id=f"0000:{0x10 + index:02x}:00")
            for index in range(GPUS)
        )
        scenario = Scenario(gpus, start_ms - 60_000)
        played = scenario.environment(library_folder(), scenario.write(folder / "scenario"))
        own = {"FALLOW_AGENT_HOST": name, "FALLOW_AGENT_SPOOL": str(folder / "spool"), "MALLOC_ARENA_MAX": "2"}
        environment = clean_environment(played | clock.environment | own | dict(settings))
        return cls(name, folder, clock, ExpectedRows(interval_ms), environment)

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(f"GPU-{self.name}-{index}" for index in range(GPUS))

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "fallow", "agent", "run"]
            given = {"stdout": log, "stderr": log, "cwd": REPOSITORY, "env": self.environment}
            self.agent = subprocess.Popen(command, start_new_session=True, **given)  # type: ignore[call-overload]
        self.sessions.add(self.agent.pid)

    def kill(self) -> None:
        """The supervisor, at this moment; its worker ends by itself, and a publisher that it has started goes on."""
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()
            self.agent = None

    def ask_to_end(self) -> None:
        if self.agent is not None:
            self.agent.terminate()

    def wait_for_end(self) -> int:
        """The exit code of an agent that was asked to end."""
        if self.agent is None:
            return 0
        try:
            code = self.agent.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.agent.kill()
            code = self.agent.wait()
        self.agent = None
        return code

    def kill_child(self, module: str) -> bool:
        """Kills a process of this host that runs the module; whether there was one."""
        for pid in children_of(self.sessions):
            with contextlib.suppress(OSError):
                if module.encode() in Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def waiting_rows(self) -> int:
        """Rows of the spool that are not in the lake yet."""
        from agent.spool.spool import Spool  # the spool of a host whose agent has ended

        with contextlib.closing(Spool(str(self.folder / "spool"))) as spool:
            return spool.count()


@dataclass(frozen=True)
class _Process:
    pid: int
    session: int
    state: bytes


def processes() -> Iterator[_Process]:
    """Every process of the machine."""
    for name in os.listdir("/proc"):  # noqa: PTH208  # asked some thousand times
        if name.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                yield _Process(int(name), int(fields[3]), fields[0])


def children_of(sessions: set[int]) -> list[int]:
    return [
        each.pid for each in processes() if each.session in sessions and each.pid not in sessions and each.state != b"Z"
    ]


def busy_beside_clocks(hosts: list[FleetHost]) -> bool:
    """Whether a process does not live by its host's clock yet, or a thread that never waited by it is running."""
    owners = {session: host for host in hosts for session in host.sessions}
    known = {host.name: (host.clock.processes(), host.clock.threads()) for host in hosts}
    for each in processes():
        if (host := owners.get(each.session)) is None or each.state in b"ZX":
            continue
        its_processes, threads = known[host.name]
        if each.pid not in its_processes:
            return True
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{each.pid}/task"):  # noqa: PTH208
                if int(tid) not in threads and _state(each.pid, tid) in b"RD":
                    return True
    return False


def _state(pid: int, tid: str) -> bytes:
    try:
        return Path("/proc", str(pid), "task", tid, "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"
