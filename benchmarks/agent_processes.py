"""The kernel's figures of all processes of an agent at one moment: memory, descriptors and CPU time."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.gpu_host import MIB, cpu_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_CLOCK_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_KIB_A_MIB = MIB / 1024
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) (\d+)", re.MULTILINE)
_SIZES = re.compile(rb"^(Rss|Pss|Anonymous): +(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Memory:
    """Resident memory in MiB: all pages, and with shared pages divided among their processes (`pss`)."""

    rss_mib: float = 0.0
    pss_mib: float = 0.0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.rss_mib + other.rss_mib, self.pss_mib + other.pss_mib)


@dataclass(frozen=True)
class AgentProcesses:
    """A supervisor and its descendants; processes that end meanwhile are ignored."""

    supervisor: int
    _roles: dict[int, str] = field(default_factory=dict)

    def pids(self) -> dict[int, str]:
        """Return every current process, by the module that it runs: `supervisor`, `worker`, `publisher`, ..."""
        try:
            children = [child.pid for child in psutil.Process(self.supervisor).children(recursive=True)]
        except psutil.Error:
            children = []
        for pid in children:
            if self._roles.get(pid, "other") == "other":  # a fork that has not loaded its program yet
                self._roles[pid] = _role(pid)
        return {self.supervisor: "supervisor"} | {pid: self._roles[pid] for pid in children}

    def cpu_ms(self) -> float:
        """Return the CPU time of all processes so far, including ended ones (these with a resolution of 10 ms)."""
        total = 0.0
        for pid in self.pids():
            try:
                total += cpu_ms([pid]) + _ended_children_ms(pid)
            except OSError:
                continue
        return total

    def threads(self) -> int:
        return sum(_entries(Path("/proc", str(pid), "task")) for pid in self.pids())

    def descriptors(self) -> int:
        return sum(_entries(Path("/proc", str(pid), "fd")) for pid in self.pids())


def memory(pids: Mapping[int, str]) -> dict[str, Memory]:
    """Return the current memory by kind of process."""
    found: dict[str, Memory] = defaultdict(Memory)
    for pid, role in pids.items():
        if sizes := _sizes(_read(pid, "smaps_rollup")):
            found[role] += Memory(sizes[b"Rss"] / _KIB_A_MIB, sizes[b"Pss"] / _KIB_A_MIB)
    return dict(found)


def pss_alone_mib(pids: Iterable[int]) -> float:
    """Return the processes' memory on a machine without another program on the same Python.

    The kernel divides a library's page among all processes that map it, including other programs. Here a file's pages
    count once, by the process with the most of them, and memory without a file counts fully.
    """
    anonymous_kib, files_kib = 0, dict[tuple[bytes, bytes], int]()
    for pid in pids:
        own: dict[tuple[bytes, bytes], int] = defaultdict(int)
        for file, sizes in _mappings(_read(pid, "smaps")):
            anonymous_kib += sizes[b"Anonymous"]
            own[file] += sizes[b"Rss"] - sizes[b"Anonymous"]
        for file, size_kib in own.items():
            files_kib[file] = max(files_kib.get(file, 0), size_kib)
    return (anonymous_kib + sum(files_kib.values())) / _KIB_A_MIB


def peak_rss_mib(pids: Mapping[int, str]) -> dict[str, float]:
    """Return the kernel's maximum of resident memory of each process, which no sampling can miss."""
    peaks: dict[str, float] = {}
    for pid, role in pids.items():
        if found := re.search(rb"^VmHWM:\s+(\d+) kB", _read(pid, "status"), re.MULTILINE):
            peaks[role] = max(peaks.get(role, 0.0), int(found[1]) / _KIB_A_MIB)
    return peaks


def _role(pid: int) -> str:
    words = _read(pid, "cmdline").split(b"\0")
    return words[words.index(b"-m") + 1].decode().rpartition(".")[2] if b"-m" in words[:-1] else "other"


def _mappings(text: bytes) -> Iterator[tuple[tuple[bytes, bytes], dict[bytes, int]]]:
    """Yield device and inode of each mapping, with its sizes in KiB."""
    heads = list(_MAPPING.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)] if heads else []
    for head, end in zip(heads, ends, strict=True):
        yield (head[1], head[2]), _sizes(text[head.end() : end])


def _sizes(text: bytes) -> dict[bytes, int]:
    return {name: int(size_kib) for name, size_kib in _SIZES.findall(text)}


def _ended_children_ms(pid: int) -> float:
    """Return the CPU time of the children that a process has waited for (proc_pid_stat(5), fields 16 and 17)."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return (int(fields[13]) + int(fields[14])) * _CLOCK_TICK_MS if fields else 0.0


def _entries(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:  # it has just ended
        return b""
