"""Folders that take long to make and are only read: one for all workers of a run, made by the first that needs it."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def made_once(base: Path, name: str, make: Callable[[Path], object]) -> Path:
    """The folder, which `make` has filled; `base` is where the run, or this worker of it, has its temporary files."""
    folder = (base.parent if base.name.startswith("popen-") else base) / f"once-{name}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_made = folder.with_suffix(".made")
        if not is_made.exists():
            folder.mkdir()
            make(folder)
            is_made.touch()
    return folder
