"""The content of `fallow top`: one line per GPU and process, and the summary on top. Pure, without a terminal."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.snapshot import WATCHED
from fallow.process_user import process_user

if TYPE_CHECKING:
    from agent.snapshot import Row, Snapshot

IDLE, FREE, ACTIVE, SPLIT, UNKNOWN = "idle", "free", "active", "mig", "unknown"
"""States of a watched GPU: idle with a user, idle without a user, active, split into MIG instances, not measured.

For other GPUs the state is their health.
"""


@dataclass(frozen=True)
class GpuLine:
    """One GPU or MIG instance; None is unknown."""

    gpu: str
    label: str
    """The GPU's index; for a MIG instance `parent:instance`."""
    model: str | None
    state: str
    util_pct: float | None
    sm_pct: float | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    users: tuple[str, ...] | None
    """The users, the one with the most memory first; empty: no user; None: unknown."""
    idle_ms: int | None
    """How long no kernel has run, within the watched time; None: active or unknown."""
    idle_since_start: bool
    """Whether it has been idle for the whole watched time, so that the idle time may be longer."""

    @property
    def held_idle(self) -> bool:
        """Return whether the GPU has a user and no kernel ran."""
        return self.state == IDLE


@dataclass(frozen=True)
class ProcessLine:
    row: Row
    gpu_label: str
    gpu_order: tuple[int, int, str]
    """The sort key, by the order of the GPUs."""
    user: str

    @property
    def mem_used_bytes(self) -> int:
        """Return the used memory; 0 where it is unknown."""
        return self.row.get("mem_used_bytes") or 0


@dataclass(frozen=True)
class TopSummary:
    """The whole host; GPUs that are split into MIG instances count as their instances."""

    gpus: int
    watched: int
    """Number of GPUs whose utilization is known."""
    held_idle: int
    held_idle_bytes: int
    held_idle_by: tuple[tuple[str, int, int], ...]
    """Users with the number of GPUs and the bytes that they hold idle, the largest first."""
    free: int
    """Number of GPUs without a user."""
    unwatched: tuple[tuple[str, int], ...]
    """Number of GPUs that cannot be watched, by state of health."""
    util_pct: float | None
    power_w: float | None
    power_limit_w: float | None
    mem_used_bytes: int | None
    """Used memory of the GPUs whose use is known; the total is of the same GPUs."""
    mem_total_bytes: int | None
    processes: int | None
    """Number of distinct processes in the known lists; None where no list is known."""
    processes_partly: bool
    """Whether a GPU's list is unknown, so that there may be more processes."""


def gpu_lines(snapshot: Snapshot) -> list[GpuLine]:
    """Return the GPUs in the driver's order, MIG instances below their parents."""
    processes = _by_gpu(snapshot)
    lines = [(_order(snapshot, row["gpu"]), _gpu_line(snapshot, row, processes[row["gpu"]])) for row in snapshot.gpus]
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def process_lines(snapshot: Snapshot) -> list[ProcessLine]:
    """Return the processes on watched GPUs, those with the most device memory first."""
    lines = [
        ProcessLine(row, _label(snapshot, row["gpu"]), _order(snapshot, row["gpu"]), user_name(row))
        for rows in _by_gpu(snapshot).values()
        for row in rows
    ]
    return sorted(lines, key=lambda line: (-line.mem_used_bytes, line.gpu_order, line.row["pid"]))


def summarize(lines: list[GpuLine], processes: list[ProcessLine]) -> TopSummary:
    counted = [line for line in lines if line.state != SPLIT]
    idle = [line for line in counted if line.held_idle]
    unwatched: dict[str, int] = defaultdict(int)
    for line in counted:
        if line.state not in (IDLE, FREE, ACTIVE, UNKNOWN):
            unwatched[line.state] += 1
    utils = [line.util_pct for line in counted if line.util_pct is not None]
    powers = [line.power_w for line in lines if line.power_w is not None]
    limits = [line.power_limit_w for line in lines if line.power_w is not None and line.power_limit_w is not None]
    listed = [line.users is not None for line in counted]
    memory = [
        (line.mem_used_bytes, line.mem_total_bytes)
        for line in counted
        if line.mem_used_bytes is not None and line.mem_total_bytes is not None
    ]
    return TopSummary(
        gpus=len(counted),
        watched=sum(line.state in (IDLE, FREE, ACTIVE) for line in counted),
        held_idle=len(idle),
        held_idle_bytes=sum(line.mem_used_bytes or 0 for line in idle),
        held_idle_by=_held_idle_by(idle),
        free=sum(line.state == FREE for line in counted),
        unwatched=tuple(sorted(unwatched.items())),
        util_pct=sum(utils) / len(utils) if utils else None,
        power_w=sum(powers) if powers else None,
        power_limit_w=sum(limits) if limits and len(limits) == len(powers) else None,
        mem_used_bytes=sum(used for used, _ in memory) if memory else None,
        mem_total_bytes=sum(total for _, total in memory) if memory else None,
        processes=len({line.row["pid"] for line in processes}) if any(listed) else None,
        processes_partly=not all(listed),
    )


_USER = ("user", "container_runtime", "container", "unit")


def user_name(row: Row) -> str:
    """Return the pod, else the user, then the job or the unit; the pid of a process that /proc hides."""
    jobless = not (row.get("pod") or row.get("slurm_job_id") or row.get("ray_job_id"))
    named = process_user(*(row.get(part) if jobless or part == "user" else None for part in _USER))
    owner = named or f"pid {row['pid']}"
    if row.get("pod"):
        owner = f"{row['namespace']}/{row['pod']}" if row.get("namespace") else row["pod"]
    if row.get("slurm_job_id"):
        return f"{owner} (job {row['slurm_job_id']})"
    if row.get("ray_job_id"):
        return f"{owner} (ray {row['ray_job_id']})"
    if row.get("unit") and row["unit"] != owner:
        return f"{owner} ({row['unit']})"
    return str(owner)


def _held_idle_by(idle: list[GpuLine]) -> tuple[tuple[str, int, int], ...]:
    """Return the idle GPUs per user. A GPU counts for the user with the most memory on it, so the numbers add up."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in idle:
        found[line.users[0] if line.users else "not known"].append(line.mem_used_bytes or 0)
    return tuple(
        sorted(((who, len(sizes), sum(sizes)) for who, sizes in found.items()), key=lambda each: (-each[2], each[0]))
    )


def _by_gpu(snapshot: Snapshot) -> dict[str, list[Row]]:
    watched = {row["gpu"] for row in snapshot.gpus if row["health"] in WATCHED}
    found: dict[str, list[Row]] = defaultdict(list)
    for row in snapshot.processes:
        if row["gpu"] in watched:
            found[row["gpu"]].append(row)
    return found


def _gpu_line(snapshot: Snapshot, row: Row, processes: list[Row]) -> GpuLine:
    gpu = row["gpu"]
    device = snapshot.devices.get(gpu, {})
    since_ms = snapshot.idle_since_ms.get(gpu)
    state = _state(row, device, processes)
    return GpuLine(
        gpu=gpu,
        label=_label(snapshot, gpu),
        model=device.get("mig_profile") or device.get("model"),
        state=state,
        util_pct=row.get("gpu_util_pct"),
        sm_pct=row.get("sm_active_pct"),
        mem_used_bytes=row.get("mem_used_bytes"),
        mem_total_bytes=device.get("mem_total_bytes"),
        power_w=row.get("power_w"),
        power_limit_w=device.get("power_limit_w"),
        temperature_c=row.get("temperature_c"),
        users=_users(row, processes),
        idle_ms=None if since_ms is None else row["time"] + row["interval_ms"] - since_ms,
        idle_since_start=since_ms is not None and since_ms - snapshot.started_ms <= 2 * snapshot.interval_ms,
    )


def _state(row: Row, device: Row, processes: list[Row]) -> str:
    if row["health"] not in WATCHED:
        return str(row["health"])
    if device.get("mig_enabled") and device.get("parent_gpu") is None:
        return SPLIT
    if row.get("gpu_util_pct") is None:
        return UNKNOWN
    if row["gpu_util_pct"] > 0 or row.get("gpu_util_max_pct"):
        return ACTIVE
    if processes or row.get("process_count"):
        return IDLE
    return FREE if row.get("process_count") == 0 else UNKNOWN


def _users(row: Row, processes: list[Row]) -> tuple[str, ...] | None:
    sizes: dict[str, int] = defaultdict(int)
    for each in processes:
        sizes[user_name(each)] += each.get("mem_used_bytes") or 0
    if not sizes and row.get("process_count") != 0:
        return None
    return tuple(sorted(sizes, key=lambda name: (-sizes[name], name)))


def _label(snapshot: Snapshot, gpu: str) -> str:
    device = snapshot.devices.get(gpu, {})
    parent = device.get("parent_gpu")
    if parent is None:
        return _text(device.get("gpu_index"))
    parent_index = snapshot.devices.get(parent, {}).get("gpu_index")
    return f"{_text(parent_index)}:{_text(device.get('gpu_instance_id'))}"


def _order(snapshot: Snapshot, gpu: str) -> tuple[int, int, str]:
    device = snapshot.devices.get(gpu, {})
    board = snapshot.devices.get(device.get("parent_gpu") or gpu, {})
    index, instance = board.get("gpu_index"), device.get("gpu_instance_id")
    return (
        1 << 30 if index is None else index,
        -1 if device.get("parent_gpu") is None else instance if instance is not None else 1 << 30,
        gpu,
    )


def _text(value: Any) -> str:
    return "?" if value is None else str(value)
