"""Where the audit log is kept beside standard error: a file or syslog, with one JSON line per act of a reader."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

from fallow.errors import ConfigError, FallowError

_SYSLOG = "syslog"
_SOCKET = "/dev/log"
_PATIENCE_S = 2.0
_AUTHPRIV_NOTICE = 10 * 8 + 5
"""Facility and severity as in RFC 3164: private security messages (authpriv) that report no error (notice)."""


class AuditError(FallowError):
    """A line of the audit log cannot be written."""


class Trail(Protocol):
    """One place where the lines are kept."""

    def write(self, line: str, *, sync: bool = False) -> None:
        """Add one line, whole or not at all. With `sync` the line is on the disk on return. Raises OSError."""
        ...


class NoTrail:
    """No trail: the lines go to standard error only."""

    def write(self, line: str, *, sync: bool = False) -> None:
        pass


NO_TRAIL = NoTrail()


class FileTrail:
    """A file that only its owner can read. It is opened for each line, so that log rotation may move it at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: str, *, sync: bool = False) -> None:
        with self.opened() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # across processes: `_append` may cut off only its own line
            _append(file, f"{line}\n".encode("ascii"))
            if sync:
                os.fsync(file)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Yield the descriptor of the file; a missing file is created. Raises OSError."""
        # follows no link; a pipe without a reader is an error instead of a wait
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is not a file")
            if (
                os.geteuid() == 0 and found.st_size == 0
            ):  # a command run by root must leave a file that the pages can write
                folder = self._path.parent.stat()
                os.fchown(file, folder.st_uid, folder.st_gid)
            yield file
        finally:
            os.close(file)


def _append(file: int, content: bytes) -> None:
    before = os.fstat(file).st_size
    written = os.write(file, content)  # fails as a whole, or writes what there is room for
    if written != len(content):
        os.ftruncate(file, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SyslogTrail:
    """The syslog of this machine, through its socket."""

    def __init__(self, address: str) -> None:
        self._address = address

    @classmethod
    def reached(cls, address: str) -> Self:
        """Return the trail to the syslog that listens at the address; raises OSError where none listens."""
        found = cls(address)
        found._connected().close()
        return found

    def write(self, line: str, *, sync: bool = False) -> None:  # noqa: ARG002  # what syslog does with it is its own
        with self._connected() as to:
            to.send(f"<{_AUTHPRIV_NOTICE}>fallow: {line}".encode("ascii"))

    def _connected(self) -> socket.socket:
        to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            to.settimeout(_PATIENCE_S)
            to.connect(self._address)
        except OSError:
            to.close()
            raise
        return to


def trail_of(setting: str) -> Trail:
    """Return the trail that dashboard.audit names: a file, `syslog`, `syslog:SOCKET` or nothing.

    Raises ConfigError where the trail cannot be written.
    """
    if not setting:
        return NO_TRAIL
    kind, _, address = setting.partition(":")
    try:
        if kind == _SYSLOG:
            return SyslogTrail.reached(address or _SOCKET)
        path = Path(setting)
        if not path.is_absolute():
            raise ConfigError(
                f"dashboard.audit {setting} is neither syslog nor an absolute path", "begin the path with /"
            )
        trail = FileTrail(path)
        with trail.opened():
            return trail
    except OSError as error:
        raise ConfigError(
            f"dashboard.audit {setting} cannot be written: {error.strerror}",
            "name a file in a folder that the pages' user may write, or syslog",
        ) from error
