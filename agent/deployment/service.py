"""The agent's service on a host: its settings and unit, and what starts and restarts it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent.deployment.host_files import DEFAULT, EXAMPLE, UNIT_FILE, shipped_text
from agent.supervise.control import AgentStatus, ask
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.deployment.host_files import Host
    from agent.deployment.versions import CheckedEnvironment

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


CONFIG = "/etc/fallow/fallow.toml"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
DROP_INS = f"{UNIT_PATH}.d"
DROP_IN = f"{DROP_INS}/10-install.conf"
PREFIX = "/opt/fallow"
_LAKE = "/srv/fallow/lake"
_SPOOL = "/var/lib/fallow"
_LAKE_LINE = re.compile(r"^# path = .*$", re.MULTILINE)


def write_config(host: Host, lake: str | None) -> None:
    """Writes the example settings where there are none; what a site has written stays."""
    if host.at(CONFIG).exists():
        if lake is not None:
            host.left_out.append(f"{CONFIG} is there already: set lake.path in it by hand")
        return
    text = shipped_text(EXAMPLE)
    if lake is not None:
        text = _LAKE_LINE.sub(lambda _: f"path = {json.dumps(lake)}", text, count=1)
    host.write(CONFIG, text)


def write_unit(host: Host, prefix: str, user: str, checked: CheckedEnvironment) -> bool:
    """Writes the unit as it is shipped, and a drop-in where this host differs; whether either has changed."""
    changed = host.write(UNIT_PATH, shipped_text(UNIT_FILE))
    lines = drop_in_lines(prefix, user, checked)
    if not lines:
        return host.remove(DROP_IN) or changed
    text = "# Written by `fallow agent install`. Your own lines go into another file beside it.\n[Service]\n"
    return host.write(DROP_IN, text + "".join(f"{line}\n" for line in lines)) or changed


def drop_in_lines(prefix: str, user: str, checked: CheckedEnvironment) -> list[str]:
    """What the unit has to say otherwise for these settings."""
    lines = []
    if prefix != PREFIX:
        lines += ["ExecStart=", f"ExecStart={_quoted(f'{prefix}/bin/fallow')} agent run"]
    if user != DEFAULT:
        lines += [f"User={user}", "Group="]
    folders = [path for path, usual in ((checked.lake, _LAKE), (checked.spool, _SPOOL)) if path not in ("", usual)]
    lines += [f"ReadWritePaths=-{_quoted(path)}" for path in folders if path.startswith("/")]
    return lines


def _quoted(path: str) -> str:
    """A path as a unit file takes it: `%` begins a specifier, a space ends a word."""
    path = path.replace("%", "%%")
    return json.dumps(path) if re.search(r"[\s\"'\\]", path) else path
