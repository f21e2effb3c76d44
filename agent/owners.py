"""Whose a process is: user and command name from /proc, remembered per (pid, start time)."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence


class Owners:
    """Looks processes up; what cannot be seen (another PID namespace, already gone) stays null."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], dict[str, Any]] = {}
        self._names: dict[int, str] = {}

    def describe(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows with started, user, command and attribution where /proc knows them."""
        seen: dict[tuple[int, int], dict[str, Any]] = {}
        described = []
        for row in rows:
            found = self._look_up(row["pid"])
            if found is not None:
                seen[row["pid"], found["started"]] = found
            described.append(row | (found or {}))
        self._known = seen  # a process that has left the lists is forgotten
        return described

    def _look_up(self, pid: int) -> dict[str, Any] | None:
        try:
            started = round(psutil.Process(pid).create_time() * 1000)
            known = self._known.get((pid, started))
            if known is not None:
                return known
            folder = Path("/proc", str(pid))
            # the name alone: arguments hold secrets and are off by default; any bytes may stand in it
            command = folder.joinpath("comm").read_bytes().rstrip(b"\n").decode(errors="replace")
            return {
                "started": started,
                "user": self._login_name(folder.stat().st_uid),
                "command": command,
                "attribution": "proc",
            }
        except (psutil.Error, OSError):
            return None

    def _login_name(self, uid: int) -> str:
        """The login name, or the number where it has none; asked once, since a directory service may be slow."""
        if uid not in self._names:
            try:
                self._names[uid] = pwd.getpwuid(uid).pw_name.encode(errors="surrogateescape").decode(errors="replace")
            except KeyError:
                self._names[uid] = str(uid)
        return self._names[uid]
