"""Reads files that a person or a setting names: one reader, which never waits for a pipe and never reads without end."""

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
"""TOML or JSON that people write: settings, mappings, scenarios, a model's `config.json`."""

CERTIFICATE_BYTES = 4 << 20
"""PEM; a system's authorities take about 250 KB."""

TABLE_BYTES = 16 << 20
"""A CSV table that people keep by hand: a hundred thousand lines."""

WRITER_S = 10.0
"""How long a named pipe may stay without a writer."""


class NotAFileError(OSError):
    """What is named cannot be read as a file; `strerror` says why, and `hint` what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(None, reason)
        self.hint = hint


def given_bytes(what: str, path: str | Path, most_bytes: int, error: type[FallowError] = ConfigError) -> bytes:
    """Return the content of a regular file, or of what a link leads to; nothing for `/dev/null`.

    `what` names the file in errors: a setting, or `the config file`. Raises `error` for a pipe, a device, a folder, more than
    `most_bytes`, and a file that cannot be read; its cause is the OSError.
    """
    try:
        return _read(path, most_bytes)
    except OSError as cause:
        raise error(f"cannot read {what} {path}: {cause.strerror}", remedy(cause)) from cause


def given_text(
    what: str, path: str | Path, most_bytes: int, error: type[FallowError] = ConfigError, encoding: str = "utf-8"
) -> str:
    """Return the same as text; raises `error` also for bytes of another encoding."""
    try:
        return given_bytes(what, path, most_bytes, error).decode(encoding)
    except UnicodeDecodeError as cause:
        name = "ASCII" if encoding == "ascii" else "UTF-8"
        raise error(f"cannot read {what} {path}: it is not {name} text", f"save it as {name}") from cause


def authorities(what: str, path: str) -> ssl.SSLContext:
    """Return a client's context that trusts the authorities of a PEM file, or the system's where the path is empty.

    Raises ConfigError, which names the file by `what`.
    """
    import ssl  # 4 MiB, for https only

    if path:
        given_bytes(what, path, CERTIFICATE_BYTES)
    try:
        return ssl.create_default_context(cafile=path or None)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{what} {path} has no certificate that can be read", "name a PEM file") from error


def open_input(path: str | Path) -> tuple[bytes, BinaryIO]:
    """Return the first byte of a pipe, nothing of a file, and the file or pipe, open for reading what follows.

    A pipe is what a shell makes of `/dev/stdin` and `<(command)`. Raises OSError, and NotAFileError for a device, a socket, a
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
    """Return what to do about a file that could not be read."""
    if isinstance(error, NotAFileError):
        return error.hint
    return "check its permissions" if isinstance(error, PermissionError) else "check the path"


def _read(path: str | Path, most_bytes: int) -> bytes:
    descriptor = _open(path)
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_rdev != os.stat(os.devnull).st_rdev:  # noqa: PTH116  # /dev/null is how people name an empty file
            _must_be(descriptor, stat.S_ISREG)
        content = file.read(most_bytes + 1)
    if content is None:  # the kernel has nothing to say just now, as in /proc/kmsg
        raise NotAFileError("it has no content that ends", "write the content into a file, and name that")
    if len(content) > most_bytes:
        raise NotAFileError(f"it is larger than {format_bytes(most_bytes)}", "check that it is the file that was meant")
    return content


def _open(path: str | Path) -> int:
    """The descriptor of whatever is named, without waiting and without becoming a terminal's process."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a NUL in it
        raise NotAFileError("no file has such a name", "check the path") from error
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # `fdopen` refuses it, and leaves it open
        os.close(descriptor)
        raise NotAFileError("it is a folder", "name a file")
    return descriptor


def _must_be(descriptor: int, *kinds: Callable[[int], bool]) -> int:
    """The type of what is open; raises NotAFileError where it is of none of the kinds."""
    mode = os.fstat(descriptor).st_mode
    if not any(is_kind(mode) for is_kind in kinds):
        raise NotAFileError(f"it is {kind_of(mode)}", "write the content into a file, and name that")
    return stat.S_IFMT(mode)


def _first_byte(pipe: int) -> bytes:
    """Return the first byte; nothing where the writer wrote nothing, or has not written yet."""
    until_s = time.monotonic() + WRITER_S
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        events = poll.poll(50)
        try:
            first = os.read(pipe, 1)
        except BlockingIOError:  # there is a writer, who takes its time
            return b""
        if first or events:  # events without a byte: a writer came and went
            return first
        if time.monotonic() >= until_s:
            raise NotAFileError("it is a named pipe without a writer", "start its writer, or name a file")
