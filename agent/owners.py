"""Whose a process is: user and command name from /proc, remembered per (pid, start time)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence


class Owners:
    """Looks processes up; what cannot be seen (another PID namespace, already gone) stays null."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], dict[str, Any]] = {}

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
            process = psutil.Process(pid)
            started = round(process.create_time() * 1000)
            known = self._known.get((pid, started))
            if known is not None:
                return known
            with process.oneshot():
                # the name alone: arguments hold secrets and are off by default
                return {
                    "started": started,
                    "user": process.username(),
                    "command": process.name(),
                    "attribution": "proc",
                }
        except psutil.Error:
            return None
