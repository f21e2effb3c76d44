"""CPU, memory and pressure of the host, as the kernel counts them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.host.files import read, whole

RESOURCES = ("cpu", "memory", "io")
"""What the kernel measures pressure of, as its files are called."""

_FIRST_LINE_BYTES = 512
_TIMES = 8  # user nice system idle iowait irq softirq steal; the guests' times after them lie in user and nice already
_MEMORY = re.compile(rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree):\s*(\d+) kB$", re.MULTILINE)
_SOME = re.compile(rb"^some .*\btotal=(\d+)$", re.MULTILINE)
_MOST_CPUS = 2**15 - 1  # of the column


@dataclass(frozen=True)
class CpuTimes:
    """Time of all CPUs since boot, in clock ticks."""

    total: int
    idle: int
    """Of the total, without work, also while waiting for I/O; time that a hypervisor took is not idle."""


@dataclass(frozen=True)
class Memory:
    """Bytes; None is unknown."""

    total: int | None
    used: int | None
    swap_used: int | None


def cpu_times(proc: str) -> CpuTimes | None:
    """The first line of /proc/stat; None where it is not as expected."""
    text = read(f"{proc}/stat", _FIRST_LINE_BYTES)
    if text is None or not text.startswith(b"cpu ") or b"\n" not in text:
        return None
    times = [whole(field) for field in text.split(b"\n", 1)[0].split()[1 : 1 + _TIMES]]
    known = [time for time in times if time is not None]
    if len(known) != len(times) or len(known) < 5:
        return None
    return CpuTimes(sum(known), known[3] + known[4])


def cpu_count(sys: str) -> int | None:
    """CPUs that are online, from a list such as `0-5,8-11`."""
    count = 0
    for part in (read(f"{sys}/devices/system/cpu/online") or b"").strip().split(b","):
        first, _, last = part.partition(b"-")
        begin, end = whole(first), whole(last or first)
        if begin is None or end is None or not 0 <= end - begin < _MOST_CPUS:
            return None
        count += end - begin + 1
    return count if count <= _MOST_CPUS else None


def memory(proc: str) -> Memory:
    """Total, total minus available (what could be had without swapping), and swap in use."""
    found = {name: whole(value) for name, value in _MEMORY.findall(read(f"{proc}/meminfo") or b"")}
    kib = {name: value for name, value in found.items() if value is not None and value < 2**53}
    return Memory(
        None if b"MemTotal" not in kib else kib[b"MemTotal"] * 1024,
        _difference_bytes(kib.get(b"MemTotal"), kib.get(b"MemAvailable")),
        _difference_bytes(kib.get(b"SwapTotal"), kib.get(b"SwapFree")),
    )


def _difference_bytes(whole_kib: int | None, part_kib: int | None) -> int | None:
    if whole_kib is None or part_kib is None or part_kib > whole_kib:
        return None
    return (whole_kib - part_kib) * 1024


def pressure_us(proc: str) -> dict[str, int | None]:
    """Per resource the time since boot in which some task waited for it; None where the kernel does not say.

    Kernels before 4.20 have no such files, and `psi=0` (or distributions that need `psi=1`) leave them empty.
    """
    totals: dict[str, int | None] = {}
    for resource in RESOURCES:
        found = _SOME.search(read(f"{proc}/pressure/{resource}") or b"")
        totals[resource] = None if found is None else whole(found[1])
    return totals
