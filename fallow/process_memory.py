"""What a process gives back of its memory."""

from __future__ import annotations

import contextlib
import ctypes


def trim_memory() -> None:
    """Hand free memory to the system, which glibc does by itself only at the end of a heap; no other C library can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
