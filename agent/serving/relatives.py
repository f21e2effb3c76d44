"""Which GPUs an inference server holds, by the family of its processes.

The process that answers requests often holds no GPU itself: vLLM's and SGLang's start workers that do, and TGI's launcher
starts its router beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_DEEPEST = 64
_STARTERS = frozenset(
    {
        "bash", "sh", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "busybox", "slurm_script", "sudo", "su", "sshd",
        "tmux: server", "screen", "systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "pause",
        "supervisord", "s6-supervise", "runsv", "containerd-shim", "conmon",
    }
)  # fmt: skip
"""What starts programs that have nothing to do with one another."""


@dataclass(frozen=True)
class Process:
    """One process for ever, also when its number is given to another."""

    pid: int
    started_ticks: int


def identify(proc: str, pid: int) -> Process | None:
    """The process that has this number now."""
    fields = _stat(proc, pid)
    return None if fields is None else Process(pid, int(fields[19]))


def parent(proc: str, pid: int) -> int | None:
    """The process that started this one, or took it over."""
    fields = _stat(proc, pid)
    return None if fields is None else int(fields[1])


def command(proc: str, pid: int) -> str:
    """The name of its program, cut off after 15 characters; empty where it cannot be seen."""
    try:
        with open(f"{proc}/{pid}/comm", "rb") as file:  # noqa: PTH123  # pathlib takes three times as long
            return file.read().rstrip(b"\n").decode(errors="replace")
    except OSError:
        return ""


def lineage(proc: str, pid: int) -> tuple[int, ...]:
    """The process, its parent and so on up to, and without, the first of all."""
    line: list[int] = []
    at: int | None = pid
    while at is not None and at > 1 and at not in line and len(line) < _DEEPEST:
        line.append(at)
        at = parent(proc, at)
    return tuple(line)


def families(proc: str, pids: Collection[int]) -> dict[int, tuple[int, ...]]:
    """The lineage of each process."""
    return {pid: lineage(proc, pid) for pid in pids}


def gpus_of(
    proc: str, pid: int, gpu_pids: Mapping[str, Collection[int]], lines: Mapping[int, Collection[int]]
) -> tuple[str, ...]:
    """The GPUs, sorted, that the server's processes hold; `lines` are the lineages of the processes on GPUs.

    These are the process itself, what it started and what started it. If none of them holds a GPU, also what its parent
    started, unless the parent is a shell or a service manager.
    """
    own = set(lineage(proc, pid))
    found = tuple(
        sorted(gpu for gpu, pids in gpu_pids.items() if any(each in own or pid in lines.get(each, ()) for each in pids))
    )
    above = parent(proc, pid)
    if found or above is None or above <= 1 or command(proc, above) in _STARTERS:
        return found
    return tuple(sorted(gpu for gpu, pids in gpu_pids.items() if any(above in lines.get(each, ()) for each in pids)))


def _stat(proc: str, pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat after the name, which may hold spaces and brackets; None where there is no such process."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123  # pathlib takes three times as long
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 19 else None
