"""CPU per tick for reading the host and its processes directly and with psutil, with 32 processes on 8 GPUs.

The agent uses psutil unless direct reading saves more than 1 ms per tick, or psutil lacks a needed value
(docs/agent-cost.md). The benchmark sleeps between two readings, so that both begin with cold caches, as a tick does.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from agent.kernel_files import read_stat
from benchmarks.measure import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROCESSES = 32
_REPEATS = int(os.environ.get("BENCH_READINGS", "100"))
_PAUSE_S = 0.03
_MEMORY = re.compile(rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree):\s*(\d+) kB$", re.MULTILINE)
_RSS = """
import sys
statm = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
import agent.spool.backlog, agent.supervise.fleet, agent.supervise.control
before = statm()
import psutil
print(statm() - before)
"""


@dataclass(frozen=True)
class Reading:
    """One set of values, read in two ways."""

    name: str
    by_hand: Callable[[], object]
    by_psutil: Callable[[], object]
    how: str


def measure() -> Iterator[Figure]:
    """Yield the CPU milliseconds per tick of every reading in both ways, and the memory cost of importing psutil."""
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(PROCESSES)]
    try:
        for reading in _readings([child.pid for child in children]):
            for way, read in (("hand", reading.by_hand), ("psutil", reading.by_psutil)):
                yield Figure(f"reading_{reading.name}_by_{way}", _cpu_ms(read), "ms", reading.how)
    finally:
        for child in children:
            child.kill()
            child.wait()
    printed = subprocess.run([sys.executable, "-c", _RSS], capture_output=True, text=True, check=True).stdout
    yield Figure("psutil_rss", int(printed) / 2**20, "MiB", "what importing psutil adds to the supervisor")


def _cpu_ms(read: Callable[[], object]) -> float:
    """Return the median CPU milliseconds of this thread."""
    taken = []
    for _ in range(_REPEATS):
        time.sleep(_PAUSE_S)
        before_s = time.thread_time()
        read()
        taken.append((time.thread_time() - before_s) * 1000)
    return statistics.median(taken)


def _readings(pids: list[int]) -> Iterator[Reading]:
    cards = [
        name
        for name in os.listdir("/sys/class/net")  # noqa: PTH208  # as cheap as can be
        if os.path.exists(f"/sys/class/net/{name}/device")  # noqa: PTH110
    ]
    known = [psutil.Process(pid) for pid in pids]
    yield Reading("cpu", _cpu_by_hand, psutil.cpu_times, "CPU times of the host")
    yield Reading("memory", _memory_by_hand, _memory_by_psutil, "memory and swap")
    yield Reading(
        "disks", _disks_by_hand, lambda: psutil.disk_io_counters(perdisk=True, nowrap=False), "bytes of each disk"
    )
    yield Reading("network", lambda: _network_by_hand(cards), lambda: psutil.net_io_counters(pernic=True, nowrap=False),
                  "bytes of each network card; psutil reads its own network namespace only")  # fmt: skip
    yield Reading("known_processes", lambda: _known_by_hand(pids), lambda: _known_by_psutil(known),
                  f"CPU and memory of {PROCESSES} processes that are known")  # fmt: skip
    yield Reading("new_processes", lambda: _new_by_hand(pids), lambda: _new_by_psutil(pids),
                  f"start, user, CPU and memory of {PROCESSES} processes at first")  # fmt: skip


def _text(path: str, size: int = 1 << 16) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def _cpu_by_hand() -> object:
    return [int(field) for field in _text("/proc/stat", 512).split(b"\n", 1)[0].split()[1:9]]


def _memory_by_hand() -> object:
    return {name: int(value) * 1024 for name, value in _MEMORY.findall(_text("/proc/meminfo"))}


def _memory_by_psutil() -> object:
    return psutil.virtual_memory(), psutil.swap_memory()


def _disks_by_hand() -> object:
    lines = _text("/proc/diskstats").decode("ascii", "replace").splitlines()
    fields = [line.split(None, 10) for line in lines]
    return {each[2]: (int(each[5]) * 512, int(each[9]) * 512) for each in fields}


def _network_by_hand(cards: list[str]) -> object:
    folders = [f"/sys/class/net/{card}/statistics" for card in cards]
    return [(int(_text(f"{folder}/rx_bytes")), int(_text(f"{folder}/tx_bytes"))) for folder in folders]


def _known_by_hand(pids: list[int]) -> object:
    return [read_stat(f"/proc/{pid}") for pid in pids]


def _known_by_psutil(known: list[psutil.Process]) -> object:
    return [(process.cpu_times(), process.memory_info()) for process in known]


def _new_by_hand(pids: list[int]) -> object:
    return [(read_stat(f"/proc/{pid}"), _text(f"/proc/{pid}/status").partition(b"\nUid:")[2]) for pid in pids]


def _new_by_psutil(pids: list[int]) -> object:
    found = []
    for pid in pids:
        process = psutil.Process(pid)
        with process.oneshot():
            found.append((process.create_time(), process.uids(), process.cpu_times(), process.memory_info()))
    return found
