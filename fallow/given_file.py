"""Read files that flags and settings name, without waiting for a pipe and without reading endlessly."""

from __future__ import annotations

import os
import select
import stat
import time
from typing import TYPE_CHECKING, BinaryIO

from fallow.errors import ConfigError
from fallow.stores.regular_files import kind_of
from fallow.units import format_bytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from fallow.errors import FallowError

SECRET_BYTES = 64 << 10
"""A token, a password, a key or a few headers."""

SETTINGS_BYTES = 1 << 20
"""TOML or JSON: settings, mappings, scenarios, a model's `config.json`."""

CERTIFICATE_BYTES = 4 << 20
"""PEM; a system's CAs have about 250 KB."""

TABLE_BYTES = 16 << 20
"""A CSV table that people edit: a hundred thousand lines."""

WRITER_S = 10.0
"""Longest wait for the writer of a named pipe."""


class NotAFileError(OSError):
    """The name cannot be read as a file; `strerror` is the reason, `hint` the remedy."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(None, reason)
        self.hint = hint


def given_bytes(what: str, path: str | Path, most_bytes: int, error: type[FallowError] = ConfigError) -> bytes:
    """Return the content of a regular file, or of the target of a link; empty for `/dev/null`.

    `what` names the file in errors: a setting, or `the config file`. Raises `error` for a pipe, a device, a folder,
    more than `most_bytes`, and a file that cannot be read; its cause is the OSError.
    """
    try:
        return _read(path, most_bytes)
    except OSError as cause:
        raise error(f"cannot read {what} {path}: {cause.strerror}", remedy(cause)) from cause


def given_text(
    what: str, path: str | Path, most_bytes: int, error: type[FallowError] = ConfigError, encoding: str = "utf-8"
) -> str:
    """Return the content as text; raises `error` also for another encoding."""
    try:
        return given_bytes(what, path, most_bytes, error).decode(encoding)
    except UnicodeDecodeError as cause:
        name = "ASCII" if encoding == "ascii" else "UTF-8"
        raise error(f"cannot read {what} {path}: it is not {name} text", f"save it as {name}") from cause


def authorities(what: str, path: str) -> ssl.SSLContext:
    """Return a client's TLS context that trusts the CAs of a PEM file, or the system's CAs for an empty path.

    Raises ConfigError, which names the file as `what`.
    """
    import ssl  # 4 MiB, for https only

    if path:
        given_bytes(what, path, CERTIFICATE_BYTES)
    try:
        return ssl.create_default_context(cafile=path or None)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{what} {path} has no certificate that can be read", "name a PEM file") from error


def open_input(path: str | Path) -> tuple[bytes, BinaryIO]:
    """Return the first byte of a pipe, empty for a file, and the open file or pipe.

    Shells pass `/dev/stdin` and `<(command)` as pipes. Raises OSError, and NotAFileError for a device, a socket, a
    folder, and a pipe without a writer after `WRITER_S`.
    """
    descriptor = _open(path)
    try:
        first = _first_byte(descriptor) if _must_be(descriptor, stat.S_ISREG, stat.S_ISFIFO) == stat.S_IFIFO else b""
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return first, os.fdopen(descriptor, "rb")


def remedy(error: OSError) -> str:
    """Return the remedy for a file that could not be read."""
    if isinstance(error, NotAFileError):
        return error.hint
    return "check its permissions" if isinstance(error, PermissionError) else "check the path"


def _read(path: str | Path, most_bytes: int) -> bytes:
    descriptor = _open(path)
    with os.fdopen(descriptor, "rb") as file:
        # people use /dev/null as an empty file
        if os.fstat(descriptor).st_rdev != os.stat(os.devnull).st_rdev:  # noqa: PTH116
            _must_be(descriptor, stat.S_ISREG)
        content = file.read(most_bytes + 1)
    if content is None:  # the kernel has no data now, as in /proc/kmsg
        raise NotAFileError("its content does not end", "write the content to a file, and name the file")
    if len(content) > most_bytes:
        raise NotAFileError(f"it is larger than {format_bytes(most_bytes)}", "check that this is the intended file")
    return content


def _open(path: str | Path) -> int:
    """Return the descriptor of the name, without waiting and without acquiring a terminal."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # the name contains NUL
        raise NotAFileError("no file can have this name", "check the path") from error
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # `fdopen` refuses a folder, and does not close it
        os.close(descriptor)
        raise NotAFileError("it is a folder", "name a file")
    return descriptor


def _must_be(descriptor: int, *kinds: Callable[[int], bool]) -> int:
    """Return the type of the open file; raises NotAFileError for other types."""
    mode = os.fstat(descriptor).st_mode
    if not any(is_kind(mode) for is_kind in kinds):
        raise NotAFileError(f"it is {kind_of(mode)}", "write the content to a file, and name the file")
    return stat.S_IFMT(mode)


def _first_byte(pipe: int) -> bytes:
    """Return the first byte; empty if the writer has written nothing."""
    until_s = time.monotonic() + WRITER_S
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        events = poll.poll(50)
        try:
            first = os.read(pipe, 1)
        except BlockingIOError:  # a writer is slow
            return b""
        if first or events:  # events without a byte: a writer came and went
            return first
        if time.monotonic() >= until_s:
            raise NotAFileError("it is a named pipe without a writer", "start its writer, or name a file")
