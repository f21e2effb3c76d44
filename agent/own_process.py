"""The agent's own processes: how they are started, whether they run in a container, and their memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys

from agent.kernel_files import PAGE_BYTES
from fallow.process_memory import trim_memory

_WITHOUT_FOLDER = "import sys, runpy; del sys.path[0], sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"


def module_command(module: str, *arguments: str) -> list[str]:
    """The command of this Python for a module; nothing is ever imported from the folder that the agent runs in.

    That is what `-P` is for, which Python 3.10 lacks: there a line of code takes the folder off the path before any
    module is looked for.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", module, *arguments]
    return [sys.executable, "-c", _WITHOUT_FOLDER, module, *arguments]


def in_container() -> bool:
    """Whether this process runs in a container of docker, podman or Kubernetes."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(os.path.exists(mark) for mark in marks)  # noqa: PTH110  # the NVML worker spares pathlib, 0.8 MiB


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc
_RETURNED_FROM_BYTES = 32 << 10
_ARENAS = 2  # one more than the sampling needs: a thread that waits for it would hold up an interval

_statm: list[int] = []


def resident_bytes() -> int:
    """Resident memory of this process; the file is kept open, because it is read at every interval."""
    if not _statm:
        _statm.append(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))
    return int(os.pread(_statm[0], 64, 0).split()[1]) * PAGE_BYTES


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
