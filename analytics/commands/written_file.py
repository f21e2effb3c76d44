"""Write a command's answer to a file in one step, or to standard output."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from fallow.errors import FallowError, UsageError
from fallow.output import show


def out_file(text: str) -> str | None:
    """Return the file that --out names; None for `-`, standard output."""
    return None if text == "-" else text


def write_out(out: str | None, content: bytes, *, is_text: bool = True) -> None:
    """Write to a file, or to standard output; raises UsageError for binary content on a terminal."""
    if out is not None:
        write_whole(Path(out), content)
    elif is_text:
        show(content.decode().replace("\r\n", "\n"), end="")  # CSV files end lines as in RFC 4180
    elif sys.stdout.isatty():
        raise UsageError(
            "this format is binary, and standard output is a terminal", "name a file with --out, or redirect the output"
        )
    else:
        sys.stdout.buffer.write(content)


def write_whole(target: Path, content: bytes) -> None:
    """Replace the file in one step, and keep its permissions; raises FallowError, and then the old file remains.

    A target that is not a regular file, such as /dev/stdout or a pipe, is written to and never replaced.
    """
    partial = target.parent / f".fallow-report.{os.getpid()}.{os.urandom(4).hex()}.part"
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        partial.write_bytes(content)
        if target.exists():
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
        partial.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise FallowError(
            f"cannot write {target}: {error.strerror}", "check that the folder exists and is writable"
        ) from error
