"""The settings and the unit of the agent on a host."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from agent.deployment.service import UNIT
from agent.deployment.shipped import EXAMPLE, shipped_text
from agent.deployment.shipped import UNIT as UNIT_FILE
from agent.deployment.user import DEFAULT

if TYPE_CHECKING:
    from agent.deployment.environment import CheckedEnvironment
    from agent.deployment.host import Host

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
