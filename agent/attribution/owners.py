"""Rows of the `process` table: counters of every process on a GPU, and its user, pod and job from all sources."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from agent.attribution.kubelet import Kubelet, PodName
from agent.attribution.lookups import (
    SLUID_REMEDY,
    SLUIDS_ALONE,
    AttributedProcess,
    Failures,
    LoginNames,
    SlurmController,
    SlurmJob,
    slurm_job,
    unknown_form,
)
from agent.attribution.placement import parse_cgroup, parse_environ
from agent.attribution.proc import (
    own_proc,
    printable,
    read_arguments,
    read_cgroup,
    read_environ,
    read_identity,
    sees_all_processes,
)
from agent.collectors import Collector, Interval
from agent.kernel_files import PAGE_BYTES, TICKS_PER_S, read_stat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.attribution.kubelet import Allocation
    from agent.attribution.placement import Placement
    from agent.attribution.settings import AttributionSettings
    from agent.collectors import PodServer
    from agent.kernel_files import Stat
    from agent.rows import EventRow, ProcessRow

_LOOK_AGAIN_MS = 300_000  # a process may change its user, and Slurm may adopt it into a job after its start
_LOOKS_AGAIN = 8  # per tick, so that no tick reads all processes again
_PRESENT_MS = 120_000
_SHORTEST_NS = 100_000_000  # CPU time is counted in steps of 10 ms, so a shorter time would give noise


class Processes:
    """Reads and caches processes from /proc, and forgets a process two minutes after it left the driver's lists."""

    def __init__(self, proc: str, *, with_arguments: bool) -> None:
        self._proc = proc
        self._with_arguments = with_arguments
        self._known: dict[int, AttributedProcess] = {}
        self._looks_left = 0

    def look(self, places: Iterable[tuple[int, str]], now_ms: int) -> dict[int, AttributedProcess]:
        """Return the processes that /proc shows, for the pid and GPU of each entry of the driver's lists."""
        self._looks_left = _LOOKS_AGAIN
        found: dict[int, AttributedProcess | None] = {}
        for pid, gpu in places:
            if pid not in found:
                found[pid] = self._look(pid, now_ms)
            if (process := found[pid]) is not None:
                process.gpus[gpu] = now_ms
        return {pid: process for pid, process in found.items() if process is not None}

    def present(self, now_ms: int) -> list[AttributedProcess]:
        """Return the processes of the last two minutes: one GPU's list may arrive without the others'."""
        self._known = {pid: each for pid, each in self._known.items() if abs(now_ms - each.seen_ms) < _PRESENT_MS}
        return list(self._known.values())

    def _look(self, pid: int, now_ms: int) -> AttributedProcess | None:
        folder = f"{self._proc}/{pid}"
        stat = read_stat(folder)
        if stat is None:
            self._known.pop(pid, None)
            return None
        process = self._known.get(pid)
        if process is None or process.start_ticks != stat.start_ticks:  # another process may have the id now
            process = self._known[pid] = AttributedProcess(stat.start_ticks)
        process.seen_ms = now_ms
        self._read_once(process, stat, pid, now_ms)
        _measure(process, stat)
        return process

    def _read_once(self, process: AttributedProcess, stat: Stat, pid: int, now_ms: int) -> None:
        """Read the expensive facts: at first, after every new program, and from time to time."""
        # the kernel names a new program before its arguments and environment exist: they are empty then,
        # and are read again as soon as their address changes
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
        folder, (started_ms, process.user_id) = f"{self._proc}/{pid}", read_identity(self._proc, pid)
        if process.started_ms is None:
            process.started_ms = started_ms
        process.placement = parse_cgroup(read_cgroup(folder) or "")
        job = parse_environ(read_environ(folder) or b"")
        process.slurm, process.ray_job_id = slurm_job(process.placement, job), job.ray_job_id
        arguments = read_arguments(folder) if self._with_arguments else None
        if changed:
            process.arguments = None  # the arguments of the previous program
        if arguments:
            from agent.attribution.masking import mask_arguments  # its patterns take memory, and it is usually off

            process.arguments = mask_arguments(arguments)


def _measure(process: AttributedProcess, stat: Stat) -> None:
    process.parent_pid = stat.parent_pid
    process.host_mem_bytes = stat.resident_pages * PAGE_BYTES
    now_ns = time.monotonic_ns()  # CPU time passes in real time, whatever the agent's clock is
    if process.cpu_ns is not None:
        elapsed_ns = now_ns - process.cpu_ns
        if elapsed_ns < _SHORTEST_NS:
            return
        process.cpu_util_pct = round((stat.cpu_ticks - process.cpu_ticks) * 1e11 / TICKS_PER_S / elapsed_ns, 1)
    process.cpu_ticks, process.cpu_ns = stat.cpu_ticks, now_ns


class ProcessOwners(Collector):
    """Attributes processes; the facts of a hidden process (another PID namespace, already gone) stay null.

    Slow queries (user directory, kubelet, Slurm) run in the background, and their answers are used later.
    """

    name = "attribution"
    table = "process"

    def __init__(self, settings: AttributionSettings) -> None:
        self._proc = own_proc(settings.proc)
        self.sees_all_processes = sees_all_processes(settings.sees_all_processes, self._proc)
        """Whether the driver's lists contain every process on the GPUs, so that their length is a count."""
        proc = self._proc or settings.proc
        self._failures = Failures()
        self._processes = Processes(proc, with_arguments=settings.command_arguments)
        self._names = LoginNames(proc, self._failures)
        self._kubelet = Kubelet(settings, proc, self._failures)
        self._controller = SlurmController(settings.scontrol, self._failures)
        self._pseudonyms = settings.pseudonyms
        self._now_ms = 0

    def collect(self, interval: Interval) -> Sequence[ProcessRow]:
        return self.describe(interval.processes, interval.end_ms)

    def unknown(self, interval: Interval) -> Sequence[ProcessRow]:
        return interval.processes

    def describe(self, rows: Sequence[ProcessRow], now_ms: int) -> list[ProcessRow]:
        """Return the rows of the `process` table with the columns of user, pod and job.

        Unknown columns are omitted. `attribution` is always present: `hidden` where /proc does not show the process,
        else the sources joined by `+`. `cpu_util_pct` is the mean since the last look, from the second look on.

        `rows` are the NVML worker's, with `pid` and `gpu`; possibly none.
        """
        self._now_ms = now_ms
        found = {} if self._proc is None else self._processes.look(((row["pid"], row["gpu"]) for row in rows), now_ms)
        present = self._processes.present(now_ms)
        self._names.look_up({each.user_id for each in present if each.user_id is not None}, now_ms)
        keys = (each.slurm.key for each in present if each.slurm.account is None)
        self._controller.look_up([key for key in keys if key is not None], now_ms)
        self._note_unknown_jobs(present)
        pods = self._pods(present, now_ms) if self._kubelet.on else {}
        columns = {pid: self._columns(process, pods.get(process.placement)) for pid, process in found.items()}
        hidden: ProcessRow = {"attribution": "hidden"}
        return [row | columns.get(row["pid"], hidden) for row in rows]

    def take_incidents(self) -> list[EventRow]:
        """Return the failures since the last call, with `kind` and `detail`; once per cause until it is over."""
        return self._failures.take()

    def allocation(self, now_ms: int) -> Allocation | None:
        """Return the GPUs of pods by the kubelet's newest answer; None where it is missing or old."""
        return self._kubelet.allocation(now_ms)

    def pod_servers(self, outdated_ms: int) -> list[PodServer]:
        """Return this host's pods that may be asked for metrics; lists of up to `outdated_ms` are replaced soon."""
        placed = [each for each in self._processes.present(self._now_ms) if each.placement.container_id is not None]
        return self._kubelet.servers(placed, self._now_ms, outdated_ms)

    def wait(self, timeout_s: float) -> None:
        """Wait for the answers of the background queries, or until the time is over; for a single look at a host."""
        deadline_s = time.monotonic() + timeout_s
        self._names.wait(self._now_ms, timeout_s)
        self._controller.wait(self._now_ms, max(0.0, deadline_s - time.monotonic()))
        self._kubelet.wait(max(0.0, deadline_s - time.monotonic()))

    def _pods(self, present: Sequence[AttributedProcess], now_ms: int) -> dict[Placement, PodName]:
        placed = [each for each in present if each.placement.container_id is not None]
        self._kubelet.refresh(placed, now_ms)
        return self._kubelet.locate(placed)

    def _note_unknown_jobs(self, present: Sequence[AttributedProcess]) -> None:
        """Report schedulers whose jobs cannot be distinguished; a host without such processes gets no event."""
        sluids = {each.slurm.sluid for each in present if each.slurm.sluid is not None}
        if any(self._controller.is_silent(sluid) for sluid in sluids):
            self._failures.failed("sluid", f"{SLUIDS_ALONE}; {SLUID_REMEDY}")
        elif not sluids:
            self._failures.worked("sluid")
        for scheduler, path in {each.placement.unknown_form or ("", "") for each in present} - {("", "")}:
            self._failures.failed(f"form of {scheduler}", unknown_form(scheduler, path))

    def _user(self, process: AttributedProcess) -> str | None:
        """Return the user: only here does a name, or the number in its place, get into a row."""
        name = None if process.user_id is None else self._names.name(process.user_id)
        return name if name is None or self._pseudonyms is None else self._pseudonyms.of(name)

    def _columns(self, process: AttributedProcess, pod: PodName | None) -> ProcessRow:
        placement, slurm = process.placement, process.slurm
        asked = SlurmJob() if slurm.account is not None else self._controller.job(slurm.key)
        job_id = slurm.job_id or asked.job_id
        sources = (
            ("proc", True),
            ("cgroup", placement.known),
            ("environ", slurm.from_environ or process.ray_job_id is not None),
            (pod.source if pod else "", pod is not None),
            ("scontrol", asked.account is not None or job_id != slurm.job_id),
        )
        columns: ProcessRow = {
            "started": process.started_ms,
            "parent_pid": process.parent_pid,
            "user": self._user(process),
            "command": process.command,
            "arguments": process.arguments,
            "cpu_util_pct": process.cpu_util_pct,
            "host_mem_bytes": process.host_mem_bytes,
            "container_runtime": placement.container_runtime or (pod.runtime if pod else None),
            "container_id": placement.container_id,
            "container": placement.container,
            "unit": placement.unit,
            "slurm_job_id": job_id,
            "slurm_step_id": slurm.step_id,
            "slurm_account": slurm.account or asked.account,
            "ray_job_id": process.ray_job_id,
            "attribution": "+".join(name for name, used in sources if used),
        }
        if pod is not None:
            columns |= {
                "container": pod.container,
                "pod": pod.pod,
                "namespace": pod.namespace,
                "pod_labels": pod.labels,
            }
        return cast("ProcessRow", {name: value for name, value in columns.items() if value is not None})
