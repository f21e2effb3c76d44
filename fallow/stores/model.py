"""What the lake asks of a place for files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fallow.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


NOT_PERMITTED = "-unreadable"
"""Ends the version of a file that this process may not read."""


WHOLE_BYTES = 8 << 20
"""Files up to this size are fetched by one request and held in memory whole; of larger ones only what is decoded."""


@dataclass(frozen=True)
class Stored:
    """One file in a store: its key (the path below the store's root, with `/`), its size and its version.

    The version is another text whenever the content may have changed, or whether this process may read it. Where
    nobody should open it, `fault` says why (a kind of `fallow.quarantine.FAULTS`) and `detail` in words that follow its name.
    """

    key: str
    size_bytes: int
    version: str
    fault: str = ""
    detail: str = ""
    modified_ms: int = 0
    """When it was stored, by the store's clock; 0 where that is not known."""


class Store(Protocol):
    """A place for files. Writers never share a key and need no rename and no condition."""

    root: str
    may_vanish: bool
    """Whether the place can go away and leave an empty one behind, as a folder does whose disk is not mounted."""

    def make(self) -> None:
        """Makes the root where that is fallow's to make; nothing else does. LakeError where it cannot be made."""
        ...

    def pinned(self) -> AbstractContextManager[None]:
        """Meanwhile the place stays the one that it is now: one that goes away leaves nothing behind where it was. LakeError."""
        ...

    def exists(self) -> bool:
        """Whether the root is there; in an object store, whether anything lies below it."""
        ...

    def list(self, prefix: str) -> Iterator[Stored]:
        """Every whole file below the prefix, in no order, and with its `fault` whatever else has a name there.

        Raises LakeError where nothing of it can be listed.
        """
        ...

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The names of the folders right below the prefix, as far as that costs next to nothing to know; LakeError as `list`."""
        ...

    def partials(self) -> Iterator[Stored]:
        """Half-written files that no listing shows: what is left of writers that were killed. LakeError as `list`."""
        ...

    def look(self, key: str) -> Stored | None:
        """The file under the key; None where there is none."""
        ...

    def read_small(self, key: str, most_bytes: int) -> bytes | None:
        """The content of a small file; None where there is none. Raises LakeError, also where it is larger."""
        ...

    def share(self, key: str) -> None:
        """Lets everybody read the file who may enter the store, whatever the umask says."""
        ...

    def put(self, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
        """Stores the bytes under the key: all of them or nothing, durable when this returns. Never makes the root.

        Raises LakeError.

        `before` is called as late as the store allows, before the key stands for these bytes; a LakeError of it stops that.
        """
        ...

    def confirm(self, key: str, data: bytes) -> None:
        """Asks the store for the key again; LakeError unless it holds these bytes, as far as it can tell."""
        ...

    def delete(self, key: str) -> None:
        """Removes the key; one that is gone already is no error."""
        ...

    def url(self, key: str) -> str:
        """What a Parquet reader opens."""
        ...


def too_large(place: str, most_bytes: int) -> LakeError:
    """The error for a small file that is none."""
    return LakeError(f"{place} is larger than {most_bytes} bytes", "move it away: fallow has not written it")


def not_kept(place: str, size_bytes: int, found: Stored | None) -> LakeError:
    """The error for a store that took a file and then does not hold it."""
    there = "does not hold it" if found is None else f"holds {found.size_bytes} bytes under that name"
    return LakeError(
        f"the store took {size_bytes} bytes for {place} and {there}", "nothing is lost: the next try stores it again"
    )
