"""Which process listens on a port of this host, as /proc tells."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from agent.serving.relatives import command, parent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LISTENING = "0A"
_FORWARDERS = frozenset({"docker-proxy", "rootlessport", "slirp4netns", "pasta", "pasta.avx2"})
"""They pass connections on into a container: whatever serves there, it is not they."""


def find_listener(proc: str, address: str, port: int, likely: Collection[int]) -> int | None:
    """The process that accepts connections to the address; None where nobody knows or it only passes them on.

    `likely` processes are looked at first, for a look at all of them takes a second on a large host. Processes of other
    users can only be seen with CAP_SYS_PTRACE. Of several that share the socket it is the one that started the others.
    """
    sockets = {f"socket:[{inode}]" for inode in _inodes(proc, address, port)}
    if not sockets:
        return None
    for group in (likely, _all_processes(proc)):
        holders = {pid for pid in group if _holds(proc, pid, sockets)}
        eldest = sorted(pid for pid in holders if parent(proc, pid) not in holders)
        if eldest:
            return None if command(proc, eldest[0]) in _FORWARDERS else eldest[0]
    return None


def _all_processes(proc: str) -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208  # names alone are wanted
    except OSError:
        return []


def _holds(proc: str, pid: int, sockets: Collection[str]) -> bool:
    folder = f"{proc}/{pid}/fd"
    try:
        descriptors = os.listdir(folder)  # noqa: PTH208  # names alone are wanted
    except OSError:  # another user's, or gone
        return False
    return any(_target(f"{folder}/{descriptor}") in sockets for descriptor in descriptors)


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115  # pathlib takes several times as long
    except OSError:  # closed since
        return ""


def _inodes(proc: str, address: str, port: int) -> frozenset[str]:
    """Sockets that listen at the address itself, else at all addresses.

    /proc/net is the agent's own network namespace: the one that its connections to loopback addresses stay in.
    """
    exact: set[str] = set()
    anywhere: set[str] = set()
    wanted = _forms(address)
    for name in ("tcp", "tcp6"):
        for local, inode in _listening(proc, name):
            host, _, local_port = local.rpartition(":")
            if local_port != f"{port:04X}":
                continue
            if host in wanted:
                exact.add(inode)
            elif not host.strip("0") and (name == "tcp6" or ":" not in address):
                anywhere.add(inode)
    return frozenset(exact or anywhere)


def _listening(proc: str, name: str) -> Iterable[tuple[str, str]]:
    try:
        with open(f"{proc}/net/{name}", encoding="ascii", errors="replace") as lines:  # noqa: PTH123  # as above
            next(lines, None)
            return [
                (fields[1], fields[9]) for line in lines if len(fields := line.split()) > 9 and fields[3] == _LISTENING
            ]
    except OSError:
        return []


def _forms(address: str) -> frozenset[str]:
    """The address as /proc/net/tcp and tcp6 write it: 32-bit words in the machine's byte order."""
    if ":" in address:
        return frozenset({_hex(socket.inet_pton(socket.AF_INET6, address))})
    packed = socket.inet_pton(socket.AF_INET, address)
    return frozenset({_hex(packed), _hex(bytes(10) + b"\xff\xff" + packed)})


def _hex(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
