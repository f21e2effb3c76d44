"""Removing the agent: everything that an installation has made, and the data only where that is asked for."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from typing import TYPE_CHECKING

from agent.deployment.layout import Layout
from agent.deployment.service import Systemd, running_agent
from agent.deployment.unit_files import CONFIG, DROP_IN, DROP_INS, UNIT_PATH
from agent.deployment.user import HOME, SYSUSERS_FILE, find_user
from fallow import config
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.deployment.host import Host
    from agent.deployment.service import Service


def uninstall(host: Host, prefix: str, user: str, service: Service | None, *, purge: bool, packaged: bool) -> None:
    """Removes the agent; raises FallowError where one runs that nothing here can stop.

    Settings, spool and user stay, so that a later installation goes on where this one ended, unless `purge` is set.
    """
    layout, spool = Layout(host, prefix), _spool_folder(host)
    with layout.locked():
        if not packaged:
            _stop(host, service, spool)
        waiting = _waiting_rows(host, spool)
        if waiting:
            host.left_out.append(f"{waiting} rows in {spool} are not in the lake{' and are gone' if purge else ' yet'}")
        if not packaged:
            for path in (UNIT_PATH, DROP_IN, SYSUSERS_FILE):
                host.remove(path)
            host.remove_if_empty(DROP_INS)
            if isinstance(service, Systemd) and not host.dry_run:
                service.reload_units()
        if purge:
            _purge(host, user, spool)
        layout.remove()


def _spool_folder(host: Host) -> str:
    """Where the settings put the spool; the usual place where they cannot be read."""
    with contextlib.suppress(FallowError):
        return config.load({}, str(host.at(CONFIG)), {}).text("agent.spool") or HOME
    return HOME


def _stop(host: Host, service: Service | None, spool: str) -> None:
    if host.dry_run:
        return
    if service is not None and host.at(UNIT_PATH).exists():
        service.stop()
    running = None if host.is_image else running_agent(spool)
    if running is not None:
        raise FallowError(
            f"the agent still runs as process {running.pid}, and nothing here can stop it",
            f"stop it (kill {running.pid}) and try again",
        )


def _waiting_rows(host: Host, spool: str) -> int:
    from agent.spool.spool_file import WAITING

    file = host.at(spool) / "spool.sqlite"
    if not file.exists():
        return 0
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db,
    ):
        found = db.execute("SELECT value FROM fact WHERE key = ?", (WAITING,)).fetchone()
        return 0 if found is None else int(found[0])
    return 0


def _purge(host: Host, user: str, spool: str) -> None:
    host.remove("/etc/fallow")
    host.remove(spool)
    if find_user(host, user) is None or host.is_image or not shutil.which("userdel"):
        return
    host.note(f"removed the user {user}")
    if not host.dry_run:
        host.run(["userdel", user], f"removing the user {user}")
