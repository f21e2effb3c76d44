"""Bytes that the host's disks and network interfaces moved since boot, each counted at the hardware and only once.

A write to a RAID of an encrypted partition shows in /proc/diskstats at each layer, and a pod's packet at each of the
interfaces that it passes. Only what has a device beneath it (a `device` link in sysfs) is counted: whole disks, never
partitions, loop, RAM, zram, device mapper or software RAID; network cards, never loopback, bridges, bonds (their cards
are counted), VLANs, tunnels or the veth pairs of containers. RDMA (InfiniBand verbs, RoCE) passes by the interfaces'
counters, so it is in none of these numbers.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Collection

Transfers = dict[str, tuple[int, int]]
"""Per device the bytes read (or received) and written (or sent)."""

_NVME_PATH = re.compile(r"nvme(\d+)c\d+n(\d+)")
_REPRESENTOR = re.compile(rb"(c\d+)?pf\d+(vf|sf)\d+")
_LARGEST_BYTES = 2**20
_LARGEST_NUMBER = 2**63 - 1


def physical_disks(sys: str) -> frozenset[str] | None:
    """Names of the whole disks; None where sysfs cannot be read."""
    return _with_device(f"{sys}/block")


def physical_interfaces(sys: str) -> frozenset[str] | None:
    """Names of the network cards; None where sysfs cannot be read.

    Left out are cards under an interface that has a device itself and includes their bytes (Azure's netvsc, virtio with
    standby), and the representors of an SR-IOV switch, whose packets pass the card as well.
    """
    cards = _with_device(f"{sys}/class/net")
    if cards is None:
        return None
    folder = f"{sys}/class/net"
    return frozenset(
        card
        for card in cards
        if not os.path.exists(f"{folder}/{card}/master/device")  # noqa: PTH110  # pathlib takes three times as long
        and not _REPRESENTOR.match(read(f"{folder}/{card}/phys_port_name") or b"")
    )


def _with_device(folder: str) -> frozenset[str] | None:
    try:
        names = os.listdir(folder)  # noqa: PTH208  # pathlib takes three times as long
    except OSError:
        return None
    return frozenset(name for name in names if os.path.exists(f"{folder}/{name}/device"))  # noqa: PTH110  # as above


def disk_transfers(disks: Collection[str]) -> Transfers:
    """What these disks read and wrote; raises as psutil does."""
    found = psutil.disk_io_counters(perdisk=True, nowrap=False)
    moved = {name: (each.read_bytes, each.write_bytes) for name, each in found.items() if name in disks}
    return _without_paths(moved)


def _without_paths(moved: Transfers) -> Transfers:
    """An NVMe namespace once: Linux before 6.2 counts its bytes at the hidden paths to it, later ones at itself."""
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
    """What these interfaces received and sent; None where one does not say.

    Read from sysfs and not by psutil, which reads /proc/net/dev: that is the network namespace of whoever reads it, with a
    line for every container's interface.
    """
    moved: Transfers = {}
    for name in interfaces:
        folder = f"{sys}/class/net/{name}/statistics"
        received, sent = whole(read(f"{folder}/rx_bytes", 32)), whole(read(f"{folder}/tx_bytes", 32))
        if received is None or sent is None:
            return None
        moved[name] = (received, sent)
    return moved


def read(path: str, first_bytes: int | None = None) -> bytes | None:
    """The whole file, or its first bytes; None where it is missing, denied or switched off (pressure gives EOPNOTSUPP)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if first_bytes is not None:
            return os.read(descriptor, first_bytes)
        text = b""
        # the kernel hands these files out a page at a time, so only an empty answer is the end
        while len(text) < _LARGEST_BYTES and (more := os.read(descriptor, 2**16)):
            text += more
    except OSError:
        return None
    else:
        return text
    finally:
        os.close(descriptor)


def whole(text: bytes | None) -> int | None:
    """The number in a text of digits; None for anything else, and for one that no 64-bit column holds."""
    digits = b"" if text is None else text.strip()
    if not digits.isdigit() or len(digits) > len(str(_LARGEST_NUMBER)):
        return None
    value = int(digits)
    return value if value <= _LARGEST_NUMBER else None
