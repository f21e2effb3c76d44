"""Roles and teams of users and groups, from the site's CSV file, which is reloaded when it changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from pathlib import Path

from analytics.money.csv_tables import CsvLine, read_lines
from dashboard.access.people import ROLES, Reader
from fallow.errors import ConfigError

_LOG = logging.getLogger(__name__)
COLUMNS = ("kind", "name", "role", "team")
KINDS = ("user", "group", "default")
NONE = "none"
"""The role of people who are refused."""

_Rows = dict[tuple[str, str], tuple[str, str | None]]
"""By kind and name: role and team, in the order of the file."""


class Directory:
    """Roles and teams by name. A valid file stays in force until it is replaced by another valid one."""

    def __init__(self, path: str, default_role: str) -> None:
        """Raises ConfigError, naming file and line, for a file that cannot be used; an empty path names nobody."""
        self._path = path
        self._default: tuple[str, str | None] = (default_role, None)
        self._lock = threading.Lock()
        self._stamp = self._stamp_now()
        self._rows: _Rows = _read(path) if path else {}

    def person(self, name: str, groups: Collection[str] = ()) -> Reader | None:
        """The person by their own line, else by the first line about one of their groups, else by the default; None without a role."""
        rows = self._current()
        by_group = (row for (kind, group), row in rows.items() if kind == "group" and group in groups)
        role, team = rows.get(("user", name)) or next(by_group, None) or rows.get(("default", "")) or self._default
        return None if role == NONE else Reader(name, role, team)

    def _current(self) -> _Rows:
        with self._lock:
            if (stamp := self._stamp_now()) != self._stamp:
                self._stamp = stamp  # an invalid file is reported once
                try:
                    self._rows = _read(self._path)
                except ConfigError as error:
                    _LOG.error("%s; what the file said before stays in force", error)
            return self._rows

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            found = Path(self._path).stat()
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)


def _read(path: str) -> _Rows:
    found: _Rows = {}
    lines: dict[tuple[str, str], int] = {}
    for line in _whole_lines(path):
        key, row = _row(line)
        if key in found:
            raise line.error(f"{' '.join(key).strip()} is named in line {lines[key]} already", "leave one of them")
        found[key], lines[key] = row, line.number
    return found


def _whole_lines(path: str) -> list[CsvLine]:
    """The lines; a shorter one is an error, since a missing team would mean all teams."""
    found = list(read_lines(path, COLUMNS, ("name", "role")))
    for line in found:
        if len(line.cells) < max(len(each.cells) for each in found):
            raise line.error("the line has fewer cells than others", "write an empty cell for what it leaves open")
    return found


def _row(line: CsvLine) -> tuple[tuple[str, str], tuple[str, str | None]]:
    kind = (line.text("kind") or KINDS[0]).lower()
    name, role = line.text("name") or "", (line.text("role") or "").lower()
    if kind not in KINDS:
        raise line.error(f"kind '{kind}' is none of {', '.join(KINDS)}")
    if role not in (*ROLES, NONE):
        raise line.error(f"role '{role}' is none of {', '.join((*ROLES, NONE))}")
    if kind == "default" and name:
        raise line.error(f"the default names '{name}'", "leave the name of that line empty: it is about all others")
    if kind != "default" and not name:
        raise line.error("name is empty", "every line names who it is about")
    return (kind, name), (role, line.text("team"))
