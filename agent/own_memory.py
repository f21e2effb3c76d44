"""The agent's own memory: how much it is, and how it stays that way."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc
_RETURNED_FROM_BYTES = 32 << 10
_ARENAS = 2  # one more than the sampling needs: a thread that waits for it would hold up an interval

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_statm: list[int] = []


def resident_bytes() -> int:
    """Resident memory of this process; the file is kept open, because it is read at every interval."""
    if not _statm:
        _statm.append(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))
    return int(os.pread(_statm[0], 64, 0).split()[1]) * _PAGE_BYTES


def bound_memory() -> None:
    """Has the C library give back what is large as soon as it is free: kept for later, it takes 2 MiB with every publishing.

    Called first, for what is allocated before stays where it is.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library without it
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _RETURNED_FROM_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, 4 * _RETURNED_FROM_BYTES)
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def settle_memory() -> None:
    """Gives back what starting up has left over, and spares the collector from walking what stays for ever.

    Compiling modules that have no bytecode on disk leaves 11 MiB behind in a worker.
    """
    gc.collect()
    gc.freeze()
    trim_memory()


def trim_memory() -> None:
    """Gives the system back what is free."""
    with contextlib.suppress(OSError, AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)
