"""Whose rights are asked for: the user who runs the doctor, or the one that the agent will run as."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_READ, _WRITE, _ENTER = 0o4, 0o2, 0o1


@dataclass(frozen=True)
class User:
    """A user and the groups that count for it."""

    name: str
    uid: int
    groups: frozenset[int]

    def may_read(self, path: Path) -> bool:
        """Whether the file's mode lets this user read it; raises OSError where there is no such file."""
        return self._has(path, _READ)

    def may_use(self, path: Path) -> bool:
        """Whether the file's mode lets this user read and write it; raises OSError where there is no such file."""
        return self._has(path, _READ | _WRITE)

    def may_fill(self, folder: Path) -> bool:
        """Whether the folder's mode lets this user make files in it; raises OSError where there is no such folder."""
        return self._has(folder, _WRITE | _ENTER)

    def _has(self, path: Path, bits: int) -> bool:
        facts = path.stat()
        shift = 6 if facts.st_uid == self.uid else 3 if facts.st_gid in self.groups else 0
        return self.uid == 0 or (facts.st_mode >> shift) & bits == bits


def find_user(name: str) -> User | None:
    """The user of that name, or whoever runs this where the name is empty; None where there is no such user."""
    if not name:
        return User(_name(os.geteuid()), os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return User(name, entry.pw_uid, frozenset(os.getgrouplist(name, entry.pw_gid)))


def group_name(gid: int) -> str:
    """The name of a group; empty where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
