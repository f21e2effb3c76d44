"""Regular files of a folder: what a name is before it is opened, and how one is opened without waiting or leaving the lake."""

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
    (stat.S_ISLNK, "a link that leads out of the lake, or nowhere"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegularError(OSError):
    """What has the name of a file is none; the text says what it is instead."""


def kind_of(mode: int) -> str:
    """What a name stands for that is no regular file."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else")


def open_regular(path: str, root: str) -> OpenFile:
    """The file, for reading; raises OSError, NotRegularError where the name is that of a pipe, a device or a link out of the root.

    It never waits for a writer of a pipe, and what is checked is the file that is read.
    """
    descriptor = descriptor_of(path, root)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return OpenFile(descriptor)
    os.close(descriptor)  # FileIO refuses folders, and would leave them open
    raise NotRegularError(f"it is {kind_of(mode)}")


def read_regular(path: str, root: str, most_bytes: int) -> bytes | None:
    """The content of a file as it was when it was opened, None where it is larger; raises as `open_regular` does.

    A file object would take as long as the reading: this is called for every small file.
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
    """The open file, whatever it is, unless a link leads out of the root to it; never waits. Raises OSError."""
    descriptor = _open(path, root)
    if _is_inside(descriptor, root):
        return descriptor
    os.close(descriptor)
    raise NotRegularError("a link leads out of the lake to it")


def _is_inside(descriptor: int, root: str) -> bool:
    """Whether what is open lies below the root, whatever links its folders were when it was opened; also where nobody tells."""
    try:
        place = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # for every small file
    except OSError:
        return True
    if not place.startswith(_real(root)):
        _real.cache_clear()  # the root itself may be a link that leads elsewhere by now
    return place.startswith(_real(root))


@functools.lru_cache(maxsize=16)
def _real(root: str) -> str:
    """The root's own place, with a slash behind it."""
    return os.path.join(os.path.realpath(root), "")  # noqa: PTH118  # which keeps the slash


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
        raise NotRegularError("it is a link that leads out of the lake, or nowhere")
    return os.open(target, flags | os.O_NOFOLLOW)


class OpenFile(io.FileIO):
    """An open file that closes itself when nobody holds it any more, as pyarrow's own files do."""

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


def inside(path: str, root: str) -> str | None:
    """Where a link leads; None where that is not below the root, or is nothing."""
    try:
        target = os.path.realpath(path, strict=True)
    except OSError:
        return None
    return target if Path(target).is_relative_to(os.path.realpath(root)) else None


def may_read(path: str, facts: os.stat_result) -> bool:
    """Whether this process may read the file; the system is asked only where neither everybody nor the owner may."""
    if facts.st_mode & stat.S_IROTH or (facts.st_mode & stat.S_IRUSR and facts.st_uid == os.geteuid()):
        return True
    return os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
