"""The processes on the GPUs: each one's numbers at every look, and what hardly changes remembered between looks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.attribution.lookups import SlurmJob, slurm_job
from agent.attribution.placement import Placement, parse_cgroup, parse_environ
from agent.attribution.proc import (
    PAGE_BYTES,
    TICKS_PER_S,
    Stat,
    printable,
    read_arguments,
    read_cgroup,
    read_environ,
    read_identity,
    read_stat,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOK_AGAIN_MS = 300_000  # a process may change its user, and Slurm adopts some into a job after their start
_LOOKS_AGAIN = 8  # at one time, so that no tick pays for all
_PRESENT_MS = 120_000
_SHORTEST_NS = 100_000_000  # CPU is counted in steps of 10 ms: over less time it would be noise


@dataclass(slots=True)
class AttributedProcess:
    """One process, named for ever by its id and its start."""

    start_ticks: int
    started_ms: int | None = None
    command_bytes: bytes = b""
    texts: tuple[bytes, ...] = ()
    command: str = ""
    parent_pid: int = 0
    host_mem_bytes: int = 0
    cpu_util_pct: float | None = None
    user_id: int | None = None
    placement: Placement = field(default_factory=Placement)
    slurm: SlurmJob = field(default_factory=SlurmJob)
    ray_job_id: str | None = None
    arguments: str | None = None
    gpus: dict[str, int] = field(default_factory=dict)
    seen_ms: int = 0
    read_ms: int | None = None
    cpu_ticks: int = 0
    cpu_ns: int | None = None


class Processes:
    """Looks into /proc and remembers; a process that has left the driver's lists is forgotten after two minutes."""

    def __init__(self, proc: str, *, with_arguments: bool) -> None:
        self._proc = proc
        self._with_arguments = with_arguments
        self._known: dict[int, AttributedProcess] = {}
        self._looks_left = 0

    def look(self, places: Iterable[tuple[int, str]], now_ms: int) -> dict[int, AttributedProcess]:
        """The processes that /proc shows, given the pid and GPU of each entry of the driver's lists."""
        self._looks_left = _LOOKS_AGAIN
        found: dict[int, AttributedProcess | None] = {}
        for pid, gpu in places:
            if pid not in found:
                found[pid] = self._look(pid, now_ms)
            if (process := found[pid]) is not None:
                process.gpus[gpu] = now_ms
        return {pid: process for pid, process in found.items() if process is not None}

    def present(self, now_ms: int) -> list[AttributedProcess]:
        """Processes that were listed within the last two minutes: one GPU's list may come without the others'."""
        self._known = {pid: each for pid, each in self._known.items() if abs(now_ms - each.seen_ms) < _PRESENT_MS}
        return list(self._known.values())

    def _look(self, pid: int, now_ms: int) -> AttributedProcess | None:
        folder = f"{self._proc}/{pid}"
        stat = read_stat(folder)
        if stat is None:
            self._known.pop(pid, None)
            return None
        process = self._known.get(pid)
        if process is None or process.start_ticks != stat.start_ticks:  # the id may have gone to another process
            process = self._known[pid] = AttributedProcess(stat.start_ticks)
        process.seen_ms = now_ms
        self._read_once(process, stat, pid, now_ms)
        _measure(process, stat)
        return process

    def _read_once(self, process: AttributedProcess, stat: Stat, pid: int, now_ms: int) -> None:
        """What costs more than a look: read at first, with every new program, and now and then."""
        # the kernel names a new program before its arguments and environment are in place: read then, they are empty,
        # and are read again as soon as they lie elsewhere
        changed = stat.command != process.command_bytes or stat.texts not in ((), process.texts)
        if not changed and process.read_ms is not None and abs(now_ms - process.read_ms) < _LOOK_AGAIN_MS:
            return
        if not changed and process.read_ms is not None:
            if self._looks_left == 0:
                return
            self._looks_left -= 1
        process.command_bytes, process.command = stat.command, printable(stat.command)
        process.texts = stat.texts or process.texts
        process.read_ms = now_ms
        folder, identity = f"{self._proc}/{pid}", read_identity(self._proc, pid)
        if process.started_ms is None:
            process.started_ms = identity.started_ms
        process.user_id = identity.user_id
        process.placement = parse_cgroup(read_cgroup(folder) or "")
        job = parse_environ(read_environ(folder) or b"")
        process.slurm, process.ray_job_id = slurm_job(process.placement, job), job.ray_job_id
        arguments = read_arguments(folder) if self._with_arguments else None
        if changed:
            process.arguments = None  # those of the program before it
        if arguments:
            from agent.attribution.masking import mask_arguments  # its patterns take memory, and it is off mostly

            process.arguments = mask_arguments(arguments)


def _measure(process: AttributedProcess, stat: Stat) -> None:
    process.parent_pid = stat.parent_pid
    process.host_mem_bytes = stat.resident_pages * PAGE_BYTES
    now_ns = time.monotonic_ns()  # CPU passes in real time, whatever clock the agent keeps
    if process.cpu_ns is not None:
        elapsed_ns = now_ns - process.cpu_ns
        if elapsed_ns < _SHORTEST_NS:
            return
        process.cpu_util_pct = round((stat.cpu_ticks - process.cpu_ticks) * 1e11 / TICKS_PER_S / elapsed_ns, 1)
    process.cpu_ticks, process.cpu_ns = stat.cpu_ticks, now_ns
