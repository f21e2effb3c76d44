"""Files and names in the lake that readers leave out, with the reason, so that the other files can be read."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fallow.errors import UnusableFileError
    from fallow.lake import LakeFile


class OnUnusable(Protocol):
    """A callback for files that cannot be used. Readers leave them out; without a callback they raise the error."""

    def __call__(self, file: LakeFile, error: UnusableFileError, /) -> None: ...


@dataclass(frozen=True, order=True)
class LeftOut:
    """A file or name that readers of the lake leave out: its path below the root, a kind of FAULTS, and a sentence."""

    key: str
    kind: str
    sentence: str


FAULTS = {
    "broken": "is not a whole Parquet file of its table",
    "too_large": "is larger than any file of a lake",
    "not_regular": "is not a regular file",
    "unreadable": "cannot be read: the reader lacks the permission, or the disk fails",
    "foreign_host": "names another host than its folder",
    "no_name": "does not have the name of a file of the lake",
    "no_host": "is in a folder whose name is not UTF-8",
    "no_date": "is in a folder whose name is not a date",
}
"""The kinds of fault, each with the end of a sentence that begins with the file's name."""


class Quarantine:
    """The files and names that were left out so far, without duplicates. Thread-safe."""

    def __init__(self) -> None:
        self._found: dict[str, LeftOut] = {}
        self._lock = threading.Lock()

    def add(self, left_out: LeftOut) -> None:
        with self._lock:
            self._found[left_out.key] = left_out

    def leave_out(self, file: LakeFile, error: UnusableFileError) -> None:
        """Record a file that cannot be used; this is an `OnUnusable`."""
        self.add(LeftOut(file.key, error.kind, str(error)))

    @property
    def found(self) -> tuple[LeftOut, ...]:
        """The files and names that were left out, sorted by name."""
        with self._lock:
            return tuple(sorted(self._found.values()))
