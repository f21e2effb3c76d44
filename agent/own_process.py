"""The agent's own processes: their start, whether they run in a container, and their memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys

from agent.kernel_files import PAGE_BYTES
from fallow.process_memory import trim_memory

_WITHOUT_FOLDER = (
    "import sys, runpy; del sys.path[0], sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__',"
    " alter_sys=True)"
)


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module with this Python, without imports from the current folder.

    `-P` prevents such imports. Python 3.10 lacks `-P`, so there a line of code first removes the folder from the path.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", module, *arguments]
    return [sys.executable, "-c", _WITHOUT_FOLDER, module, *arguments]


def in_container() -> bool:
    """Return whether this process runs in a container of docker, podman or Kubernetes."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(
        os.path.exists(mark)  # noqa: PTH110  # the NVML worker avoids pathlib, 0.8 MiB
        for mark in marks
    )


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc
_RETURNED_FROM_BYTES = 32 << 10
_ARENAS = 2  # one more than sampling needs: a thread that waits for an arena would delay an interval

_statm: list[int] = []


def resident_bytes() -> int:
    """Return this process's resident memory in bytes. The file stays open, because it is read at every interval."""
    if not _statm:
        _statm.append(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))
    return int(os.pread(_statm[0], 64, 0).split()[1]) * PAGE_BYTES


def bound_memory() -> None:
    """Let the C library release large free blocks at once: if it keeps them, every publishing takes 2 MiB more.

    Call it first, because earlier allocations are not affected.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library without this function
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _RETURNED_FROM_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, 4 * _RETURNED_FROM_BYTES)
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def settle_memory() -> None:
    """Release the memory left over from the start, and exclude permanent objects from garbage collection.

    Compiling modules without bytecode on disk leaves 11 MiB in a worker.
    """
    gc.collect()
    gc.freeze()
    trim_memory()
