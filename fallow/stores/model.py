"""The interface of a store for the files of a lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fallow.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


NOT_PERMITTED = "-unreadable"
"""End of the version of a file that this process may not read."""


WHOLE_BYTES = 8 << 20
"""Files up to this size are fetched in one request and kept in memory; of larger files only the decoded parts."""


@dataclass(frozen=True)
class Stored:
    """A file in a store: its key (the path below the store's root, with `/`), its size and its version.

    The version changes whenever the content or the read permission of this process may have changed. For a name that
    must not be opened, `fault` is a kind of `fallow.quarantine.FAULTS`, and `detail` ends a sentence after the name.
    """

    key: str
    size_bytes: int
    version: str
    fault: str = ""
    detail: str = ""
    modified_ms: int = 0
    """Time of the last change, by the store's clock; 0 if unknown."""


class Store(Protocol):
    """A store of files. Writers never share a key, and need neither renames nor conditional writes."""

    root: str
    may_vanish: bool
    """True if the location can become empty, as a folder does whose disk is not mounted."""

    def make(self) -> None:
        """Create the root, if fallow may create it; no other method does. Raises LakeError if that fails."""
        ...

    def pinned(self) -> AbstractContextManager[None]:
        """Keep the current location inside the context, so that an unmount redirects no write. Raises LakeError."""
        ...

    def exists(self) -> bool:
        """Return whether the root exists; in an object store, whether it has objects."""
        ...

    def list(self, prefix: str) -> Iterator[Stored]:
        """Yield the complete files below the prefix in any order, and other names with their `fault`.

        Raises LakeError if the prefix cannot be listed.
        """
        ...

    def list_between(self, prefix: str, first: str, last: str) -> Iterator[Stored]:
        """Yield what `list` does of the folders directly below the prefix whose names are from `first` to `last`.

        The cost does not depend on the other folders.
        """
        ...

    def folders(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the folders directly below the prefix, if that is cheap; raises LakeError like `list`."""
        ...

    def partials(self) -> Iterator[Stored]:
        """Yield incomplete files, which `list` leaves out: remains of killed writers. Raises LakeError like `list`."""
        ...

    def look(self, key: str) -> Stored | None:
        """Return the file with the key; None if there is no such file."""
        ...

    def read_small(self, key: str, most_bytes: int) -> bytes | None:
        """Return a small file's content, None if there is no such file. Raises LakeError, also for a larger file."""
        ...

    def share(self, key: str) -> None:
        """Let all users with access to the store read the file, whatever the umask is."""
        ...

    def put(self, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
        """Store the bytes under the key, completely or not at all, and durable on return. Never creates the root.

        `before` is called as late as possible before the key has these bytes; its LakeError cancels the write.
        Raises LakeError.
        """
        ...

    def confirm(self, key: str, data: bytes) -> None:
        """Check by listing or checksum that the store has these bytes under the key; raises LakeError otherwise."""
        ...

    def delete(self, key: str) -> None:
        """Remove the file; a missing file is not an error."""
        ...

    def url(self, key: str) -> str:
        """Return the address that a Parquet reader opens."""
        ...


def too_large(place: str, most_bytes: int) -> LakeError:
    """Return the error for a file that is larger than expected."""
    return LakeError(f"{place} is larger than {most_bytes} bytes", "move it out of the lake: fallow did not write it")


def not_kept(place: str, size_bytes: int, found: Stored | None) -> LakeError:
    """Return the error for a store that accepted a file and does not have it."""
    there = "does not have it" if found is None else f"has {found.size_bytes} bytes under this name"
    return LakeError(
        f"the store accepted {size_bytes} bytes for {place} and {there}",
        "nothing is lost: the next attempt stores it again",
    )
