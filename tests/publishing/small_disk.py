"""A disk of a few MB that a test can fill to the last byte: a tmpfs in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conftest import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

_NAMESPACES = (["unshare", "--map-root-user", "--mount"], ["unshare", "--mount"])
_MOUNT = 'mount -t tmpfs -o size="$1" fallow-test "$2" && shift 2 && exec "$@"'


def namespace(folder: Path) -> list[str]:
    """The command that gives a process its own mounts here, as root or as a user; empty where neither is permitted."""
    for command in _NAMESPACES:
        with contextlib.suppress(FileNotFoundError):
            done = subprocess.run(
                [*command, "sh", "-c", _MOUNT, "sh", "1m", str(folder), "true"],
                capture_output=True,
                check=False,
                timeout=30,
            )
            if done.returncode == 0:
                return command
    return []


def run_on_small_disk(module: str, folder: Path, size: str, *arguments: str, **environment: str) -> str:
    """What `python -m module folder arguments` prints with a disk of that size mounted on the folder."""
    command = [*namespace(folder), "sh", "-c", _MOUNT, "sh", size, str(folder)]
    done = subprocess.run(
        [*command, sys.executable, "-W", "error", "-m", module, str(folder), *arguments],
        capture_output=True, text=True, check=False, timeout=280, cwd=REPOSITORY, env=clean_environment(environment),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


class Filler:
    """A file that takes all the room that is left."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "filler"

    def fill(self, leave_bytes: int = 0) -> None:
        """Leaves so many bytes of the disk free, and not one more."""
        with self._file.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                facts = os.statvfs(self._file.parent)
                left = facts.f_bavail * facts.f_frsize - leave_bytes
                if left <= 0 or not file.write(b"x" * min(left, 1 << 16)):
                    return

    def empty(self) -> None:
        """Gives all of it back."""
        self._file.unlink(missing_ok=True)
