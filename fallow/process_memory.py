"""Keep freed memory for the next array, and return unused memory to the system. Only glibc supports either."""

from __future__ import annotations

import contextlib
import ctypes
import functools

_MADV_DONTNEED = 4  # linux/mman.h

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 * 2**20


def reuse_memory() -> None:
    """Let the process keep up to 64 MiB of freed memory from now on.

    A pass over a million rows frees an array of some MiB at each step. By itself glibc returns it to the system, which
    clears it page by page for the next array: a fifth of the CPU time of a ledger.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def trim_memory() -> None:
    """Return free memory to the system; by itself glibc only returns the end of a heap."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def release_code(package: str) -> None:
    """Unmap the pages of a loaded package's libraries until they are used again; they stay in the system's file cache.

    The first call decides which: those that are loaded by then.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for start, size in _unchanged_parts(package):
            library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)


@functools.cache
def _unchanged_parts(package: str) -> list[tuple[int, int]]:
    """Return address and size of the mappings that are as in the file: pages that the loader changed would be lost."""
    parts: dict[int, int] = {}
    with open("/proc/self/smaps", "rb") as mappings:  # noqa: PTH123  # the NVML worker avoids pathlib, 0.8 MiB
        start = 0
        for line in mappings:
            key, *rest = line.split()
            if key in (b"Anonymous:", b"Swap:"):
                if rest[0] != b"0":
                    parts.pop(start, None)
            elif b"-" in key:
                start, end = (int(address, 16) for address in key.split(b"-"))
                if b"w" not in rest[0] and f"/{package}/".encode() in line:
                    parts[start] = end - start
    return list(parts.items())
