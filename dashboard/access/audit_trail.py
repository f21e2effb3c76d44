"""Where the audit log is kept beside standard error: a file or syslog, a JSON line for each thing that somebody did."""

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
"""Facility and severity as in RFC 3164: what is security's and not for everybody, and no fault."""


class AuditError(FallowError):
    """A line of the audit log cannot be written."""


class Trail(Protocol):
    """One place for the lines."""

    def write(self, line: str, *, sync: bool = False) -> None:
        """Adds one line, whole or not at all; `sync`: it is on the disk afterwards. Raises OSError."""
        ...


class NoTrail:
    """Standard error is all that there is."""

    def write(self, line: str, *, sync: bool = False) -> None:
        pass


NO_TRAIL = NoTrail()


class FileTrail:
    """A file that its owner alone can read. It is opened for each line, so that it may be moved away at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: str, *, sync: bool = False) -> None:
        with self.opened() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of all processes, so that what is cut off is one's own
            _append(file, f"{line}\n".encode("ascii"))
            if sync:
                os.fsync(file)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The descriptor of the file, which is made if it is not there; raises OSError."""
        # not by a link, and a pipe without a reader is an error instead of a wait
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is not a file")
            if os.geteuid() == 0 and found.st_size == 0:  # root's command makes no file that the pages cannot write
                folder = self._path.parent.stat()
                os.fchown(file, folder.st_uid, folder.st_gid)
            yield file
        finally:
            os.close(file)


def _append(file: int, content: bytes) -> None:
    before = os.fstat(file).st_size
    written = os.write(file, content)  # fails as a whole, or writes as much as there is room for
    if written != len(content):
        os.ftruncate(file, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SyslogTrail:
    """The syslog of this machine, by its socket."""

    def __init__(self, address: str) -> None:
        self._address = address

    @classmethod
    def reached(cls, address: str) -> Self:
        """Whoever listens at the address; raises OSError where nobody does."""
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
    """What dashboard.audit names: a file, `syslog`, `syslog:SOCKET` or nothing; raises ConfigError where it cannot be written."""
    if not setting:
        return NoTrail()
    kind, _, address = setting.partition(":")
    try:
        if kind == _SYSLOG:
            return SyslogTrail.reached(address or _SOCKET)
        path = Path(setting)
        if not path.is_absolute():
            raise ConfigError(
                f"dashboard.audit {setting} is neither syslog nor the whole path of a file", "begin it with /"
            )
        trail = FileTrail(path)
        with trail.opened():
            return trail
    except OSError as error:
        raise ConfigError(
            f"dashboard.audit {setting} cannot be written: {error.strerror}",
            "name a file in a folder that the pages' user may write, or syslog",
        ) from error
