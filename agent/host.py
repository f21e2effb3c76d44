"""One row of the `host` table per interval: CPU, memory, pressure, disks and network.

psutil reads most columns (docs/agent-cost.md has the figures). The agent itself reads pressure, which psutil does not
support. It reads network cards, because psutil reads only its own network namespace. It reads memory, because psutil
estimates values that the kernel does not report.

Bytes of disks and network interfaces are counted once, at the hardware. The kernel shows a write to a RAID of an
encrypted partition at every layer, and a pod's packet at every interface on its way. Only entries with a `device` link
in sysfs count. These are whole disks, but not partitions, loop, RAM, zram, device mapper or software RAID. They are
network cards, but not loopback, bridges, bonds (their cards count), VLANs, tunnels or the veth pairs of containers.
RDMA (InfiniBand verbs, RoCE) bypasses the interfaces' counters, so these numbers do not contain it.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psutil

from agent.collectors import Collector, Interval
from agent.kernel_files import names_in, read
from fallow.clock import boot_time_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from agent.rows import HostRow

Transfers = dict[str, tuple[int, int]]
"""Bytes read (or received) and written (or sent), by device."""

_NVME_PATH = re.compile(r"nvme(\d+)c\d+n(\d+)")
_REPRESENTOR = re.compile(rb"(c\d+)?pf\d+(vf|sf)\d+")
_LARGEST_NUMBER = 2**63 - 1


def physical_interfaces(sys: str) -> frozenset[str]:
    """Return the names of the network cards; none where sysfs is unreadable.

    They exclude cards below an interface that has a device and includes their bytes (Azure's netvsc, virtio with
    standby). They also exclude the representors of an SR-IOV switch, whose packets pass the card too.
    """
    folder = f"{sys}/class/net"
    return frozenset(
        card
        for card in _with_device(folder)
        if not os.path.exists(f"{folder}/{card}/master/device")  # noqa: PTH110  # pathlib takes three times as long
        and not _REPRESENTOR.match(read(f"{folder}/{card}/phys_port_name") or b"")
    )


def _with_device(folder: str) -> frozenset[str]:
    return frozenset(
        name
        for name in names_in(folder)
        if os.path.exists(f"{folder}/{name}/device")  # noqa: PTH110  # as above
    )


def disk_transfers(disks: Collection[str]) -> Transfers:
    """Return the bytes that these disks read and wrote; raises as psutil does."""
    found = psutil.disk_io_counters(perdisk=True, nowrap=False)
    moved = {name: (each.read_bytes, each.write_bytes) for name, each in found.items() if name in disks}
    return _without_paths(moved)


def _without_paths(moved: Transfers) -> Transfers:
    """Return the transfers with every NVMe namespace once: Linux before 6.2 counts its bytes at its hidden paths."""
    merged = dict(moved)
    for name, (taken, given) in moved.items():
        path = _NVME_PATH.fullmatch(name)
        head = "" if path is None else f"nvme{path[1]}n{path[2]}"
        if head not in moved:
            continue
        del merged[name]
        if moved[head] == (0, 0):
            merged[head] = (merged[head][0] + taken, merged[head][1] + given)
    return merged


def interface_transfers(sys: str, interfaces: Collection[str]) -> Transfers | None:
    """Return the bytes that these interfaces received and sent; None where an interface does not report them.

    They come from sysfs. psutil reads /proc/net/dev, which shows the reader's own network namespace, with a line for
    every container's interface.
    """
    moved: Transfers = {}
    for name in interfaces:
        folder = f"{sys}/class/net/{name}/statistics"
        received, sent = whole(read(f"{folder}/rx_bytes", 32)), whole(read(f"{folder}/tx_bytes", 32))
        if received is None or sent is None:
            return None
        moved[name] = (received, sent)
    return moved


def whole(text: bytes | None) -> int | None:
    """Return the number in a text of digits; None for other texts, and for a number beyond a 64-bit column."""
    digits = b"" if text is None else text.strip()
    if not digits.isdigit() or len(digits) > len(str(_LARGEST_NUMBER)):
        return None
    return _bytes(int(digits))


Value = int | float | None
Result = TypeVar("Result")

_RESOURCES = ("cpu", "memory", "io")
"""The resources whose pressure the kernel measures, by the names of its files."""
_SOME = re.compile(rb"^some .*\btotal=(\d+)$", re.MULTILINE)
_MEMORY = re.compile(rb"^(MemTotal|MemAvailable): *(\d+) kB$", re.MULTILINE)
_KIB = 1024
_TIMES = (
    8  # user nice system idle iowait irq softirq steal; user and nice already include the guests' times that follow
)
_FIND_DEVICES_S = 60.0
_LONGEST = 1.75
"""Most intervals between two looks. After more (a suspended machine, missed intervals) the mean is not valid."""


@dataclass(frozen=True)
class _Look:
    at_s: float
    cpu: tuple[float, float] | None
    """Seconds of all CPUs since boot, and idle seconds, including I/O wait. Time that a hypervisor took is not idle."""
    pressure_us: Mapping[str, int | None]
    disks: Transfers | None
    interfaces: Transfers | None


class HostMeter(Collector):
    """Reads the host's counters and computes their differences between calls.

    A missing, denied or unreadable value is null in the row; no call raises.
    """

    name = table = "host"

    def __init__(self, proc: str = "/proc", sys: str = "/sys", clock_s: Callable[[], float] = boot_time_s) -> None:
        """`proc` and `sys` are the mount points of the host's; `clock_s` must never go back."""
        self._proc, self._sys, self._clock_s = proc, sys, clock_s
        self._before: _Look | None = None
        self._disks: frozenset[str] = frozenset()
        self._interfaces: frozenset[str] = frozenset()
        self._found_s = float("-inf")

    def collect(self, interval: Interval) -> list[HostRow]:
        return [self.row(interval.start_ms, interval.length_ms)]

    def unknown(self, interval: Interval) -> list[HostRow]:
        return [{"time": interval.start_ms, "interval_ms": interval.length_ms}]

    def row(self, start_ms: int, interval_ms: int) -> HostRow:
        """Return columns of the `host` table: current levels, and rates and shares as means since the last call.

        Rates are null in the first row, after a counter went back, and after a device was added or removed. They are
        also null where no time, or much more than an interval, has passed since the last call.
        """
        psutil.PROCFS_PATH = self._proc
        look = self._look()
        before, self._before = self._before, look
        total_bytes, used_bytes = _memory(self._proc)
        swap = _reading(psutil.swap_memory)
        return {
            "time": start_ms,
            "interval_ms": interval_ms,
            "cpu_count": _reading(psutil.cpu_count),
            "mem_used_bytes": used_bytes,
            "mem_total_bytes": total_bytes,
            "swap_used_bytes": None if swap is None else _bytes(swap.used),
            **cast("HostRow", _means(before, look, _LONGEST * interval_ms / 1000)),
        }

    def _look(self) -> _Look:
        at_s = self._clock_s()
        if at_s - self._found_s >= _FIND_DEVICES_S:
            self._found_s = at_s
            self._disks = _with_device(f"{self._sys}/block")
            self._interfaces = physical_interfaces(self._sys)
        return _Look(
            at_s,
            _reading(_cpu_times),
            {resource: _pressure_us(self._proc, resource) for resource in _RESOURCES},
            _reading(lambda: disk_transfers(self._disks)) if self._disks else None,
            interface_transfers(self._sys, self._interfaces),
        )


def _reading(reading: Callable[[], Result]) -> Result | None:
    """Return psutil's value; None where it fails, because psutil raises any error of its parsing."""
    try:
        return reading()
    except Exception:  # noqa: BLE001  # see the docstring
        return None


def _memory(proc: str) -> tuple[int | None, int | None]:
    """Return the bytes installed and in use, as the kernel reports them.

    Kernels before 3.14 have no MemAvailable, and some containers' /proc shows 0; psutil would use its own estimate.
    """
    found = dict(_MEMORY.findall(read(f"{proc}/meminfo") or b""))
    total_kib, available_kib = whole(found.get(b"MemTotal")), whole(found.get(b"MemAvailable"))
    if total_kib is None:
        return None, None
    return _bytes(total_kib * _KIB), _bytes((total_kib - available_kib) * _KIB) if available_kib else None


def _bytes(size: int) -> int | None:
    return size if 0 <= size <= _LARGEST_NUMBER else None


def _cpu_times() -> tuple[float, float]:
    times: Any = psutil.cpu_times()
    return sum(times[:_TIMES]), times.idle + getattr(times, "iowait", 0.0)


def _pressure_us(proc: str, resource: str) -> int | None:
    """Return the time since boot in which a task waited for the resource; None where the kernel does not report it.

    Kernels before 4.20 have no such files, and `psi=0` (or distributions that need `psi=1`) leave them empty.
    """
    found = _SOME.search(read(f"{proc}/pressure/{resource}") or b"")
    return None if found is None else whole(found[1])


def _means(before: _Look | None, now: _Look, longest_s: float) -> dict[str, Value]:
    elapsed_s = 0.0 if before is None else now.at_s - before.at_s
    if before is None or not 0 < elapsed_s <= longest_s:
        return {}
    read, written = _per_s(before.disks, now.disks, elapsed_s)
    received, sent = _per_s(before.interfaces, now.interfaces, elapsed_s)
    return {
        "cpu_util_pct": _busy_pct(before.cpu, now.cpu),
        "cpu_pressure_pct": _waited_pct(before.pressure_us["cpu"], now.pressure_us["cpu"], elapsed_s),
        "mem_pressure_pct": _waited_pct(before.pressure_us["memory"], now.pressure_us["memory"], elapsed_s),
        "io_pressure_pct": _waited_pct(before.pressure_us["io"], now.pressure_us["io"], elapsed_s),
        "disk_read_bytes_per_s": read,
        "disk_write_bytes_per_s": written,
        "net_receive_bytes_per_s": received,
        "net_transmit_bytes_per_s": sent,
    }


def _busy_pct(before: tuple[float, float] | None, now: tuple[float, float] | None) -> float | None:
    """Return the share of the CPUs' time that was not idle. I/O wait counts as idle, because the CPU was free."""
    if before is None or now is None:
        return None
    total, idle = now[0] - before[0], now[1] - before[1]
    if not 0 <= idle <= total < math.inf or total == 0:
        return None
    return round(100 * (total - idle) / total, 1)


def _waited_pct(before_us: int | None, now_us: int | None, elapsed_s: float) -> float | None:
    """Return the share of the time in which a task waited, at most 100, because the two clocks differ a little."""
    if before_us is None or now_us is None or now_us < before_us:
        return None
    return round(min(100.0, (now_us - before_us) / elapsed_s / 10_000), 2)


def _per_s(before: Transfers | None, now: Transfers | None, elapsed_s: float) -> tuple[Value, Value]:
    """Return bytes per second in both directions over all devices; two nulls where a device is unknown."""
    if not before or not now or before.keys() != now.keys():
        return None, None
    taken = given = 0
    for name, (taken_now, given_now) in now.items():
        taken_before, given_before = before[name]
        if taken_now < taken_before or given_now < given_before:
            return None, None
        taken += taken_now - taken_before
        given += given_now - given_before
    return round(taken / elapsed_s), round(given / elapsed_s)
