"""Files whose changes fail, or kill, at a chosen moment: a shared page that says when, and what has happened."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.fakes.nvml.build import FAULTY_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

KINDS = ("count", "kill", "EIO", "ENOSPC", "short write", "hang")


class _Page(ctypes.Structure):
    _fields_ = (
        ("armed", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("folder", ctypes.c_char * 4096),
    )


class FaultyFiles:
    """What a process with `environment_of` is told, and what it tells: one page of memory, shared through a file."""

    def __init__(self, page: Path) -> None:
        with page.open("r+b") as file:
            self._page = _Page.from_buffer(mmap.mmap(file.fileno(), 0))

    @staticmethod
    def environment_of(page: Path, library_folder: Path) -> Mapping[str, str]:
        """Makes the page; a process that is started with this environment obeys it."""
        page.write_bytes(b"\0" * ctypes.sizeof(_Page))
        return {"LD_PRELOAD": str(library_folder / FAULTY_FILES), "FALLOW_FAULTY_FILES": str(page)}

    @contextmanager
    def below(self, folder: Path, kind: str = "count", at: int = 0) -> Iterator[None]:
        """Meanwhile the change of that number below the folder goes wrong."""
        self._page.folder = str(folder).encode()
        self._page.count, self._page.at, self._page.kind = 0, at, KINDS.index(kind)
        self._page.armed = 1
        try:
            yield
        finally:
            self._page.armed = 0

    @property
    def count(self) -> int:
        """How many changes there were the last time."""
        return int(self._page.count)
