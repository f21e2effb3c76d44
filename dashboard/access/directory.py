"""Roles and teams of users and groups, and tokens of programs, from the site's CSV file; a changed file is reread."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from analytics.money.csv_tables import CsvLine, read_lines
from dashboard.access.people import ROLES, VIEWER, Reader
from fallow.actors import TOKEN, name_fault, shown_name
from fallow.errors import ConfigError
from fallow.outside_text import has_hidden

_LOG = logging.getLogger(__name__)
COLUMNS = ("kind", "name", "role", "team", "sha256")
KINDS = ("user", "group", "default", TOKEN)
NONE = "none"
"""The role of people who get no access."""


@dataclass(frozen=True)
class _Named:
    people: dict[tuple[str, str], tuple[str, str | None]] = field(default_factory=dict)
    """Role and team by kind and name, in the order of the file."""
    programs: dict[str, Reader] = field(default_factory=dict)
    """Readers by the SHA-256 of their token."""


class Directory:
    """Roles and teams by name. A valid file stays in force until another valid file replaces it."""

    def __init__(self, path: str, default_role: str) -> None:
        """Raises ConfigError, with file and line, for an unusable file. With an empty path the directory is empty."""
        self._path = path
        self._default: tuple[str, str | None] = (default_role, None)
        self._lock = threading.Lock()
        self._stamp = self._stamp_now()
        self._named = _read(path) if path else _Named()

    def person(self, name: str, groups: Collection[str] = ()) -> Reader | None:
        """Return the person with their role, None without a role.

        The person's own line decides, else the first line about one of their groups, else the default.
        """
        rows = self._current().people
        by_group = (row for (kind, group), row in rows.items() if kind == "group" and group in groups)
        role, team = rows.get(("user", name)) or next(by_group, None) or rows.get(("default", "")) or self._default
        return None if role == NONE else Reader(name, role, team)

    def program(self, token: str) -> Reader | None:
        """Return the program that owns the token; None for a token that is not in the file."""
        # latin-1 holds every byte of a header
        return self._current().programs.get(hashlib.sha256(token.encode("latin-1", "replace")).hexdigest())

    def _current(self) -> _Named:
        with self._lock:
            if (stamp := self._stamp_now()) != self._stamp:
                self._stamp = stamp  # an invalid file is reported once
                try:
                    self._named = _read(self._path)
                except ConfigError as error:
                    _LOG.error("%s; the previous content of the file stays in force", error)
            return self._named

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            found = Path(self._path).stat()
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)


def _read(path: str) -> _Named:
    found = _Named()
    lines: dict[tuple[str, str], int] = {}
    for line in _whole_lines(path):
        key, row = _row(line)
        if key in lines:
            raise line.error(f"{' '.join(key).strip()} is already named in line {lines[key]}", "keep one of the lines")
        lines[key] = line.number
        if key[0] == TOKEN:
            digest = (line.text("sha256") or "").lower()
            if not re.fullmatch(r"[0-9a-f]{64}", digest):
                raise line.error("sha256 is not the SHA-256 of a token", "create both as docs/api.md shows")
            if digest in found.programs:
                raise line.error("another line has the same token", "give each program a token of its own")
            found.programs[digest] = Reader(key[1], *row, kind=TOKEN)
        else:
            found.people[key] = row
    return found


def _whole_lines(path: str) -> list[CsvLine]:
    """Return the lines of the file. A shorter line is an error, since a missing team would mean all teams."""
    found = list(read_lines(path, COLUMNS, ("name", "role")))
    for line in found:
        if len(line.cells) < max(len(each.cells) for each in found):
            raise line.error("the line has fewer cells than others", "write an empty cell for each missing value")
    return found


def _row(line: CsvLine) -> tuple[tuple[str, str], tuple[str, str | None]]:
    kind = (line.text("kind") or KINDS[0]).lower()
    # exactly as written: a name that the CSV reader cleaned up would give another person the role
    name, role = line.as_written.get("name", ""), (line.text("role") or "").lower()
    if kind not in KINDS:
        raise line.error(f"kind '{kind}' is none of {', '.join(KINDS)}")
    if role not in (*ROLES, NONE):
        raise line.error(f"role '{role}' is none of {', '.join((*ROLES, NONE))}")
    if kind == "default" and name:
        raise line.error(
            f"the default line has the name '{name}'", "leave the name empty: the line is about all others"
        )
    if kind == TOKEN and role != VIEWER:
        raise line.error(f"the token {name} has the role '{role}'", f"a token only reads: give it the role {VIEWER}")
    if kind != TOKEN and line.text("sha256"):
        raise line.error("only a token has a sha256", "leave the cell empty")
    if kind != "default" and not name:
        raise line.error("name is empty", "every line names a user, a group or a token")
    if kind == "group" and has_hidden(name):
        raise line.error(
            f"the name of the group {shown_name(name)} has invisible characters", "write its name without them"
        )
    if kind in (KINDS[0], TOKEN) and (fault := name_fault(name)) is not None:
        raise line.error(
            f"the name {shown_name(name)} {fault}", "write it as the sign-in sends it, which takes no other form"
        )
    return (kind, name), (role, line.text("team"))
