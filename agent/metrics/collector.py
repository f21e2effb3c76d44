"""Converts a snapshot to the samples of one scrape. Unknown values and old values are absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.metrics import catalogue
from agent.snapshot import WATCHED
from fallow.exposition import ExposedSamples, label_text

if TYPE_CHECKING:
    from agent.snapshot import Row, Snapshot


_WHOLE_MEANS = ("gpm", "samples")
"""Sources of utilization that are means of an interval, like DCGM's profiling fields, and not short readings."""

FRESH_INTERVALS = 3
"""An interval that ended longer ago than this number of intervals does not show the present."""

_USER = [
    "user",
    "command",
    "container_runtime",
    "container_id",
    "container",
    "pod",
    "namespace",
    "slurm_job_id",
    "slurm_step_id",
    "slurm_account",
    "ray_job_id",
    "unit",
    "attribution",
]
_FACTS = [
    "driver_version",
    "cuda_driver_version",
    "architecture",
    "compute_capability",
    "serial",
    "numa_node",
    "nvlink_island",
    "pool",
]


def collect(newest: tuple[Snapshot, float] | None) -> ExposedSamples:
    """Return the samples of a snapshot and the seconds since its interval's end; None before the first interval."""
    samples = ExposedSamples()
    if newest is None:
        samples.add(catalogue.UP, value=False)
        return samples
    snapshot, age_s = newest
    # reduced sampling has longer intervals
    longest_ms = max([snapshot.interval_ms, *(row["interval_ms"] for row in snapshot.gpus)])
    live = age_s <= FRESH_INTERVALS * longest_ms / 1000
    samples.add(catalogue.UP, live)
    info = {"version": snapshot.version, "Hostname": snapshot.host, "pool": snapshot.pool}
    samples.add(catalogue.INFO, 1, label_text(info))
    for mode in catalogue.MODES:
        samples.add(catalogue.MODE, mode == snapshot.mode, label_text({"mode": mode}))
    samples.add(catalogue.STARTED, snapshot.started_ms / 1000)
    samples.add(catalogue.INTERVAL, snapshot.interval_ms / 1000)
    labels = {row["gpu"]: label_text(_gpu_labels(snapshot, row["gpu"])) for row in snapshot.gpus}
    for row in snapshot.gpus:
        if row["health"] in WATCHED:
            end_ms = row["time"] + row["interval_ms"]
            samples.add(catalogue.SAMPLE_TIME, end_ms / 1000, labels[row["gpu"]])
            age = round(age_s + (snapshot.time_ms - end_ms) / 1000, 3)
            samples.add(catalogue.SAMPLE_AGE, age, labels[row["gpu"]])
    if live:
        for row in snapshot.gpus:
            _gpu(samples, snapshot, row, labels[row["gpu"]])
        watched = {row["gpu"] for row in snapshot.gpus if row["health"] in WATCHED}
        _errors(samples, snapshot, labels, watched)
        _processes(samples, snapshot, watched)
        for family in catalogue.HOST:
            samples.add_column(family, snapshot.host_row or {})
        _serving(samples, snapshot)
        _costs(samples, snapshot.agent_row or {})
    _publishing(samples, snapshot)
    return samples


def _gpu_labels(snapshot: Snapshot, gpu: str) -> dict[str, object]:
    """Return DCGM's labels. A MIG instance has its parent's, its instance id and profile, and its UUID in MIG_UUID."""
    device = snapshot.devices.get(gpu, {})
    parent_gpu = device.get("parent_gpu")
    board = device if parent_gpu is None else snapshot.devices.get(parent_gpu, {})
    minor = board.get("minor_number")
    labels: dict[str, object] = {
        "gpu": board.get("gpu_index"),
        "UUID": parent_gpu or gpu,
        "pci_bus_id": board.get("pci_bus_id"),
        "device": None if minor is None else f"nvidia{minor}",
        "modelName": board.get("model"),
    }
    if parent_gpu is not None:
        labels |= {
            "GPU_I_PROFILE": device.get("mig_profile"),
            "GPU_I_ID": device.get("gpu_instance_id"),
            "MIG_UUID": gpu,
        }
    return labels | {"Hostname": snapshot.host}


def _gpu_identity(snapshot: Snapshot, gpu: str) -> dict[str, object]:
    known = _gpu_labels(snapshot, gpu)
    return {name: known.get(name) for name in ("gpu", "UUID", "GPU_I_ID", "MIG_UUID", "Hostname")}


def _gpu(samples: ExposedSamples, snapshot: Snapshot, row: Row, labels: str) -> None:
    device = snapshot.devices.get(row["gpu"], {})
    samples.add(catalogue.GPU_INFO, 1, _merged_labels(labels, {name: device.get(name) for name in _FACTS}))
    for state in catalogue.HEALTH_STATES:
        samples.add(catalogue.GPU_HEALTH, row["health"] == state, _merged_labels(labels, {"health": state}))
    if row["health"] not in WATCHED:
        return
    for family in catalogue.GPU:
        samples.add_column(family, row, labels)
    for family in catalogue.DEVICE:
        samples.add_column(family, device, labels)
    samples.add(catalogue.FREE, _free_mib(row, device), labels)
    if row.get("util_source") in _WHOLE_MEANS:
        samples.add_column(catalogue.GR_ENGINE, row, labels)
    if row.get("util_source") is not None:
        samples.add(catalogue.UTIL_SOURCE, 1, _merged_labels(labels, {"source": row["util_source"]}))
    samples.add(catalogue.IDLE, _idle_s(snapshot, row), labels)
    samples.add(catalogue.STALLED, snapshot.stalled.get(row["gpu"]), labels)


def _free_mib(row: Row, device: Row) -> float | None:
    """Return the free device memory as the driver counts it: total = used + reserved + free (nvmlMemory_v2_t)."""
    total, used, reserved = device.get("mem_total_bytes"), row.get("mem_used_bytes"), row.get("mem_reserved_bytes")
    if total is None or used is None or reserved is None:
        return None
    free_mib: float = round((total - used - reserved) * catalogue.FREE.factor, 9)
    return free_mib


def _idle_s(snapshot: Snapshot, row: Row) -> float | None:
    since_ms = snapshot.idle_since_ms.get(row["gpu"])
    if since_ms is not None:
        end_ms: int = row["time"] + row["interval_ms"]
        return (end_ms - since_ms) / 1000
    return 0 if row.get("gpu_util_pct") or row.get("gpu_util_max_pct") else None


def _errors(samples: ExposedSamples, snapshot: Snapshot, labels: dict[str, str], watched: set[str]) -> None:
    """Add the error counters of reachable GPUs, and the driver's requested actions and XIDs of all GPUs."""
    for row in snapshot.errors:
        if (found := labels.get(row["gpu"])) is None:
            continue
        for family in catalogue.ERRORS if row["gpu"] in watched else ():
            samples.add_column(family, row, found)
        if row.get("recovery_action") not in (None, "none"):
            samples.add(catalogue.RECOVERY, 1, _merged_labels(found, {"action": row["recovery_action"]}))
    for gpu, xid in snapshot.xids.items():
        if (found := labels.get(gpu)) is not None:
            samples.add(catalogue.XID, xid.code, found)
            samples.add(catalogue.XID_TIME, xid.time_ms / 1000, found)


def _processes(samples: ExposedSamples, snapshot: Snapshot, watched: set[str]) -> None:
    for row in snapshot.processes:
        if row["gpu"] not in watched:
            continue
        labels = label_text(_gpu_identity(snapshot, row["gpu"]) | {"pid": row["pid"], "kind": row.get("kind")})
        samples.add(catalogue.PROCESS_INFO, 1, _merged_labels(labels, {name: row.get(name) for name in _USER}))
        for family in catalogue.PROCESS:
            samples.add_column(family, row, labels)


def _serving(samples: ExposedSamples, snapshot: Snapshot) -> None:
    """Add one value per model, whatever its number of GPUs: a separate family names the GPUs."""
    for row in snapshot.serving:
        named = {"endpoint": row["endpoint"], "model": row.get("model"), "engine": row.get("engine")}
        labels = label_text(named)
        samples.add(catalogue.SERVING_UP, row.get("health") == "ok", labels)
        for family in catalogue.SERVING:
            samples.add_column(family, row, labels)
        if (gpu := row.get("gpu")) is not None:
            where = _gpu_identity(snapshot, gpu)
            samples.add(catalogue.SERVING_GPU, 1, label_text(named | where | {"pid": row.get("pid")}))


def _costs(samples: ExposedSamples, row: Row) -> None:
    for family in catalogue.AGENT:
        labels = {}
        if family.column == "nvml_slowest_ms":
            labels = {"call": row.get("nvml_slowest_call")}
        samples.add_column(family, row, label_text(labels))


def _publishing(samples: ExposedSamples, snapshot: Snapshot) -> None:
    state = snapshot.publishing
    if state.last_success_ms is not None:
        samples.add(catalogue.PUBLISHED, state.last_success_ms / 1000)
    samples.add(catalogue.FAILING, state.failing_since_ms is not None)
    if state.failing_since_ms is not None:
        samples.add(catalogue.FAILING_SINCE, state.failing_since_ms / 1000)
    samples.add(catalogue.NAME_CONFLICT, state.name_conflict is not None)
    samples.add(catalogue.SPOOL_ROWS, state.waiting_rows)
    samples.add(catalogue.SPOOL_BYTES, state.spool_bytes)


def _merged_labels(labels: str, more: dict[str, object]) -> str:
    return ",".join(part for part in (labels, label_text(more)) if part)
