"""Regular files of a lake in a folder: the type of a name, and opening without waiting or leaving the lake."""

from __future__ import annotations

import errno
import functools
import io
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link out of the lake, or to nothing"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegularError(OSError):
    """The name is not a regular file; the text says what it is."""


def kind_of(mode: int) -> str:
    """Return the type of a name that is not a regular file, such as `a named pipe`."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else")


def open_regular(path: str, root: str) -> OpenFile:
    """Return the file, open for reading; raises OSError, NotRegularError for a pipe, device or link out of the root.

    Never waits for the writer of a pipe. The check is of the open file.
    """
    descriptor = descriptor_of(path, root)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return OpenFile(descriptor)
    os.close(descriptor)  # FileIO refuses folders without closing them
    raise NotRegularError(f"it is {kind_of(mode)}")


def read_regular(path: str, root: str, most_bytes: int) -> bytes | None:
    """Return the content of a file up to `most_bytes`, None if it is larger; raises like `open_regular`.

    Uses no file object, whose creation would take as long as reading a small file.
    """
    descriptor = descriptor_of(path, root)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise NotRegularError(f"it is {kind_of(facts.st_mode)}")
        if facts.st_size > most_bytes:
            return None
        content = os.read(descriptor, facts.st_size)
        while len(content) < facts.st_size and (more := os.read(descriptor, facts.st_size - len(content))):
            content += more
        return content
    finally:
        os.close(descriptor)


def descriptor_of(path: str, root: str) -> int:
    """Return a descriptor of a name of any type inside the root; never waits. Raises OSError."""
    descriptor = _open(path, root)
    if _is_inside(descriptor, root):
        return descriptor
    os.close(descriptor)
    raise NotRegularError("a link to it leads out of the lake")


def _is_inside(descriptor: int, root: str) -> bool:
    """Return whether the open file is really below the root, links resolved; True if the system does not tell."""
    try:
        place = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # called for every small file
    except OSError:
        return True
    if not place.startswith(_real(root)):
        _real.cache_clear()  # the root may be a link whose target changed
    return place.startswith(_real(root))


@functools.lru_cache(maxsize=16)
def _real(root: str) -> str:
    """Return the real path of the root with a slash at its end."""
    return os.path.join(os.path.realpath(root), "")  # noqa: PTH118  # keeps the slash


def _open(path: str, root: str) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise NotRegularError("it is a socket or a device") from error
        if error.errno != errno.ELOOP:
            raise
    target = inside(path, root)
    if target is None:
        raise NotRegularError("it is a link out of the lake, or to nothing")
    return os.open(target, flags | os.O_NOFOLLOW)


class OpenFile(io.FileIO):
    """An open file that closes itself when it is no longer referenced, like pyarrow's files."""

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


def inside(path: str, root: str) -> str | None:
    """Return the target of a link; None for a target outside the root, or a missing target."""
    try:
        target = os.path.realpath(path, strict=True)
    except OSError:
        return None
    return target if Path(target).is_relative_to(os.path.realpath(root)) else None


def may_read(path: str, facts: os.stat_result) -> bool:
    """Return whether this process may read the file; asks the system only if the mode bits do not answer."""
    if facts.st_mode & stat.S_IROTH or (facts.st_mode & stat.S_IRUSR and facts.st_uid == os.geteuid()):
        return True
    return os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
