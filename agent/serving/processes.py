"""The GPUs of an inference server, by the family of its processes.

The process that answers requests often holds no GPU itself. vLLM's and SGLang's start workers that hold the GPUs. TGI's
launcher starts its router beside the workers.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from agent.kernel_files import link_target, names_in, read_stat

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


_DEEPEST = 64
_STARTERS = frozenset(
    b"bash|sh|dash|zsh|fish|ksh|csh|tcsh|busybox|slurm_script|sudo|su|sshd|tmux:"
    b" server|screen|systemd|init|tini|dumb-init"
    b"|docker-init|catatonit|pause|supervisord|s6-supervise|runsv|containerd-shim|conmon".split(b"|")
)
"""Programs that start unrelated programs."""


def start_of(proc: str, pid: int) -> int | None:
    """Return the start of a process. Number and start identify a process even after its number is reused."""
    stat = read_stat(f"{proc}/{pid}")
    return None if stat is None else stat.start_ticks


def parent(proc: str, pid: int) -> int | None:
    stat = read_stat(f"{proc}/{pid}")
    return None if stat is None else stat.parent_pid


def command(proc: str, pid: int) -> bytes:
    stat = read_stat(f"{proc}/{pid}")
    return b"" if stat is None else stat.command


def lineage(proc: str, pid: int) -> tuple[int, ...]:
    """Return the process and its ancestors, without the first process of all."""
    line: list[int] = []
    at: int | None = pid
    while at is not None and at > 1 and at not in line and len(line) < _DEEPEST:
        line.append(at)
        at = parent(proc, at)
    return tuple(line)


def families(proc: str, pids: Collection[int]) -> dict[int, tuple[int, ...]]:
    return {pid: lineage(proc, pid) for pid in pids}


def gpus_of(
    proc: str, pid: int, gpu_pids: Mapping[str, Collection[int]], lines: Mapping[int, Collection[int]]
) -> tuple[str, ...]:
    """Return the GPUs, sorted, of the server's processes; `lines` are the lineages of the processes on GPUs.

    The server's processes are the process itself, its descendants and its ancestors. If none of them holds a GPU, its
    parent's other descendants count too, unless the parent is a shell or a service manager.
    """
    own = set(lineage(proc, pid))
    found = tuple(
        sorted(gpu for gpu, pids in gpu_pids.items() if any(each in own or pid in lines.get(each, ()) for each in pids))
    )
    above = parent(proc, pid)
    if found or above is None or above <= 1 or command(proc, above) in _STARTERS:
        return found
    return tuple(sorted(gpu for gpu, pids in gpu_pids.items() if any(above in lines.get(each, ()) for each in pids)))


_LISTENING = "0A"
_FORWARDERS = frozenset({b"docker-proxy", b"rootlessport", b"slirp4netns", b"pasta", b"pasta.avx2"})
"""Programs that forward connections into a container, and are not the server."""


def find_listener(proc: str, address: str, port: int, likely: Collection[int]) -> int | None:
    """Return the process that accepts connections to the address; None where it is unknown or only forwards them.

    `likely` processes are searched first: a search of all takes a second on a large host. Processes of other users are
    visible only with CAP_SYS_PTRACE. Of several with the socket, the one that started the others counts.
    """
    sockets = {f"socket:[{inode}]" for inode in _inodes(proc, address, port)}
    if not sockets:
        return None
    for group in (likely, [int(name) for name in names_in(proc) if name.isdigit()]):
        holders = {pid for pid in group if _holds(proc, pid, sockets)}
        eldest = sorted(pid for pid in holders if parent(proc, pid) not in holders)
        if eldest:
            return None if command(proc, eldest[0]) in _FORWARDERS else eldest[0]
    return None


def _holds(proc: str, pid: int, sockets: Collection[str]) -> bool:
    folder = f"{proc}/{pid}/fd"
    return any(link_target(f"{folder}/{descriptor}") in sockets for descriptor in names_in(folder))


def _inodes(proc: str, address: str, port: int) -> frozenset[str]:
    """Return the sockets that listen at the address itself, else at all addresses.

    /proc/net shows the agent's own network namespace, in which its loopback connections stay.
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
        with open(f"{proc}/net/{name}", encoding="ascii", errors="replace") as lines:  # noqa: PTH123  # pathlib is slow
            next(lines, None)
            return [
                (fields[1], fields[9]) for line in lines if len(fields := line.split()) > 9 and fields[3] == _LISTENING
            ]
    except OSError:
        return []


def _forms(address: str) -> frozenset[str]:
    """Return the address in the form of /proc/net/tcp and tcp6: 32-bit words in the machine's byte order."""
    if ":" in address:
        return frozenset({_hex(socket.inet_pton(socket.AF_INET6, address))})
    packed = socket.inet_pton(socket.AF_INET, address)
    return frozenset({_hex(packed), _hex(bytes(10) + b"\xff\xff" + packed)})


def _hex(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
