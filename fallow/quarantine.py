"""What readers leave out of the lake, so that everything else goes on: each file or name, why, and whether it may pass."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fallow.errors import UnusableFileError
    from fallow.lake import LakeFile


class OnUnusable(Protocol):
    """Is told of each file that cannot be used, which is then left out; where nobody is, the error is raised."""

    def __call__(self, file: LakeFile, error: UnusableFileError, /) -> None: ...


@dataclass(frozen=True, order=True)
class LeftOut:
    """Something in the lake that no reader uses: its path below the lake's root, the kind of fault, and the whole sentence.

    `kind` is one of FAULTS.
    """

    key: str
    kind: str
    sentence: str


FAULTS = {
    "broken": "is not a whole Parquet file of its table",
    "too_large": "is larger than any file of a lake",
    "not_regular": "is no regular file",
    "unreadable": "may not be read: its reader lacks the permission (which can be given), or its disk fails",
    "foreign_host": "says that it is of another host than its folder",
    "no_name": "has no name of a file of the lake",
    "no_host": "lies in a folder whose name is not UTF-8",
    "no_date": "lies in a folder that is named for no date",
}
"""The kinds of fault, and what is said of a file after its name."""


class Quarantine:
    """What was left out so far, each name once. Safe to use from many threads."""

    def __init__(self) -> None:
        self._found: dict[str, LeftOut] = {}
        self._lock = threading.Lock()

    def add(self, left_out: LeftOut) -> None:
        with self._lock:
            self._found[left_out.key] = left_out

    def leave_out(self, file: LakeFile, error: UnusableFileError) -> None:
        """Takes note of a file that cannot be used: an `OnUnusable`."""
        self.add(LeftOut(file.key, error.kind, str(error)))

    @property
    def found(self) -> tuple[LeftOut, ...]:
        """All of it, by name."""
        with self._lock:
            return tuple(sorted(self._found.values()))
