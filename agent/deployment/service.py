"""Who starts and restarts the agent: systemd, a command of the site's own, or nobody."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent.supervise.control import AgentStatus, ask
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.deployment.host import Host

UNIT = "fallow-agent.service"
_POLL_S = 0.5
_ASK_S = 5.0


class Service(Protocol):
    """One way of starting the agent."""

    def reload_units(self) -> None: ...

    def restart(self) -> None:
        """Starts the agent, after ending the one that runs; raises FallowError."""
        ...

    def enable(self) -> None:
        """Has it start with the machine."""
        ...

    def stop(self) -> None:
        """Ends the agent and has it start no more."""
        ...

    def is_wanted(self) -> bool:
        """Whether the agent is to run: not where somebody has stopped it on purpose."""
        ...

    def has_failed(self) -> bool:
        """Whether it is known that the agent will not come up by itself."""
        ...


@dataclass(frozen=True)
class Systemd:
    host: Host

    def reload_units(self) -> None:
        self._do("daemon-reload")

    def restart(self) -> None:
        self._do("restart", UNIT)

    def enable(self) -> None:
        self._do("enable", "--quiet", UNIT)

    def stop(self) -> None:
        self._do("disable", "--quiet", "--now", UNIT)

    def is_wanted(self) -> bool:
        return self._state("is-enabled").startswith("enabled") or self._state("is-active") not in (
            "inactive",
            "unknown",
        )

    def has_failed(self) -> bool:
        """With RestartSec= an agent that ends again and again is `auto-restart` for most of the time."""
        shown = self._state("show", "--property=ActiveState,SubState", "--value").split()
        return "failed" in shown or "auto-restart" in shown

    def _state(self, *question: str) -> str:
        """What systemd says; its exit code is another for each state."""
        done = subprocess.run(["systemctl", *question, UNIT], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def _do(self, *arguments: str) -> None:
        self.host.run(["systemctl", *arguments], f"systemctl {arguments[0]}")


@dataclass(frozen=True)
class OwnCommand:
    """`--restart COMMAND`, for service managers other than systemd."""

    host: Host
    command: str

    def reload_units(self) -> None:
        pass

    def restart(self) -> None:
        self.host.run(["sh", "-c", self.command], "the command given as --restart")

    def enable(self) -> None:
        self.host.left_out.append("starting the agent with the machine is up to your service manager")

    def stop(self) -> None:
        self.host.left_out.append("stop the agent with your service manager")

    def is_wanted(self) -> bool:
        return True

    def has_failed(self) -> bool:
        return False


def find_service(host: Host, command: str | None) -> Service | None:
    """What starts the agent here; None where nothing does: in an image, or without systemd."""
    if host.is_image:
        return None
    if command:
        return OwnCommand(host, command)
    if Path("/run/systemd/system").is_dir() and shutil.which("systemctl"):
        return Systemd(host)
    return None


def running_agent(spool: str) -> AgentStatus | None:
    """What the agent on this spool says; None where none answers."""
    if not spool:
        return None
    try:
        return AgentStatus.from_json(ask(spool, "status", _ASK_S))
    except FallowError:
        return None


def wait_for_interval(
    service: Service, spool: str, version: str, before_pid: int | None, within_s: float
) -> AgentStatus | str:
    """The status of the new agent once it has closed an interval; why not, as words, where it does not in time."""
    deadline_s = time.monotonic() + within_s
    why = "no agent answers"
    while time.monotonic() < deadline_s:
        now = running_agent(spool)
        if now is not None and now.pid != before_pid:
            if now.version != version:
                return f"the agent that answers is version {now.version}"
            if now.time_ms is not None:
                return now
            why = "it answers, and has closed no interval yet"
        elif service.has_failed():
            return "its service has failed"
        time.sleep(_POLL_S)
    return f"{why} after {within_s:.0f} s"
