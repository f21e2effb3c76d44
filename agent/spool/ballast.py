"""A little disk space that is taken in good times and given back when the disk is full.

Deleting published rows and noting what happened need room in SQLite's log; without it a full disk could not even be
helped by what the spool itself can spare.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BALLAST_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


class Ballast:
    """The file `ballast` in a spool's folder."""

    def __init__(self, folder: Path, size_bytes: int = BALLAST_BYTES) -> None:
        self._file = folder / "ballast"
        self._size_bytes = size_bytes

    def take(self) -> bool:
        """Fills the file unless it is full already; False (and no file) where the disk has no room for it."""
        try:
            if self._file.stat().st_size == self._size_bytes:
                return True
        except OSError:
            pass
        try:
            with self._file.open("wb", buffering=0) as file:
                for _ in range(0, self._size_bytes, _PIECE_BYTES):
                    # noise, for a file system may store anything else in less room than it will be asked for
                    file.write(os.urandom(min(_PIECE_BYTES, self._size_bytes)))
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> bool:
        """Gives the room back; whether there was any."""
        with contextlib.suppress(OSError):
            self._file.unlink()
            return True
        return False
