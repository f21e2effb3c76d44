"""A host as the agent may have seen it, for tests of what shows it."""

from __future__ import annotations

import time
from typing import Any

from agent.snapshot import PublishingStatus, Snapshot, Xid

GIB = 1 << 30
INTERVAL_MS = 10_000
BUSY, HELD, FREE, LOST = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "1234")


def gpu_row(gpu: str, end_ms: int, **values: Any) -> dict[str, Any]:
    """A row of the `gpu` table for the interval that ends then."""
    row = {"gpu": gpu, "time": end_ms - INTERVAL_MS, "interval_ms": INTERVAL_MS, "offset_ms": 0, "health": "ok"}
    return row | {"util_source": "samples"} | values


def device_row(gpu: str, index: int | None, **values: Any) -> dict[str, Any]:
    """A row of the `device` table."""
    known = {
        "gpu": gpu,
        "time": 0,
        "gpu_index": index,
        "model": "NVIDIA H100 80GB HBM3",
        "mem_total_bytes": 80 * GIB,
        "power_limit_w": 700.0,
        "pci_bus_id": f"00000000:{index}7:00.0",
        "minor_number": index,
        "driver_version": "580.65.06",
        "cuda_driver_version": "13.0",
    }
    return known | values


def process_row(gpu: str, pid: int, user: str | None, **values: Any) -> dict[str, Any]:
    """A row of the `process` table."""
    known = {"gpu": gpu, "time": 0, "interval_ms": 30_000, "pid": pid, "kind": "compute", "user": user}
    return known | {"command": "python", "mem_used_bytes": 40 * GIB} | values


def snapshot(end_ms: int | None = None, **values: Any) -> Snapshot:
    """Four GPUs: one busy, one held without work for 40 minutes, one free for an hour, one lost."""
    end_ms = time.time_ns() // 1_000_000 if end_ms is None else end_ms
    known = {
        "host": "gn001",
        "version": "0.2.0",
        "pool": "h100",
        "interval_ms": INTERVAL_MS,
        "started_ms": end_ms - 3_600_000,
        "time_ms": end_ms,
        "mode": "running",
        "gpus": (
            gpu_row(BUSY, end_ms, gpu_util_pct=73.4, gpu_util_max_pct=100, gpu_util_zero_ratio=0.02,
                    gpu_util_coverage_ratio=1.0, sm_active_pct=61.5, tensor_active_pct=40.5, mem_used_bytes=48 * GIB,
                    mem_reserved_bytes=GIB, power_w=612.3, energy_mj=123_456_789_012, temperature_c=64,
                    throttled_power_cap_ms=1500, throttled_hw_thermal_ms=0, process_count=1, sm_clock_mhz=1980),
            gpu_row(HELD, end_ms, gpu_util_pct=0.0, gpu_util_max_pct=0, gpu_util_zero_ratio=1.0,
                    gpu_util_coverage_ratio=1.0, mem_used_bytes=40 * GIB, power_w=74.0, temperature_c=35,
                    process_count=1),
            gpu_row(FREE, end_ms, gpu_util_pct=0.0, gpu_util_max_pct=0, gpu_util_coverage_ratio=1.0, mem_used_bytes=0,
                    power_w=70.0, temperature_c=31, process_count=0),
            gpu_row(LOST, end_ms, health="lost", util_source="none"),
        ),
        "idle_since_ms": {BUSY: None, HELD: end_ms - 2_400_000, FREE: end_ms - 3_600_000, LOST: None},
        "stalled": {BUSY: False, HELD: False, FREE: False, LOST: None},
        "devices": {gpu: device_row(gpu, index) for index, gpu in enumerate((BUSY, HELD, FREE, LOST))},
        "processes": (
            process_row(BUSY, 4711, "ada", slurm_job_id="8812", mem_used_bytes=48 * GIB, cpu_util_pct=130.0),
            process_row(HELD, 4712, "grace", pod="notebook-0", namespace="ml"),
        ),
        "host_row": {"time": end_ms - INTERVAL_MS, "cpu_util_pct": 12.5, "cpu_count": 64, "io_pressure_pct": None,
                     "cpu_pressure_pct": 1.5},
        "serving": (
            {"endpoint": "http://127.0.0.1:8000/metrics", "model": "m", "engine": "vllm", "health": "ok", "gpu": BUSY,
             "pid": 4711, "kv_cache_used_ratio": 0.25, "running_requests": 3.0},
            {"endpoint": "http://127.0.0.1:8000/metrics", "model": "m", "engine": "vllm", "health": "ok", "gpu": HELD,
             "pid": 4711, "kv_cache_used_ratio": 0.25, "running_requests": 3.0},
        ),
        "agent_row": {"supervisor_cpu_ms": 2.5, "worker_cpu_ms": 1.5, "supervisor_rss_bytes": 18 << 20,
                      "nvml_slowest_ms": 0.4, "nvml_slowest_call": "nvmlDeviceGetSamples", "sees_all_processes": True},
        "errors": ({"gpu": BUSY, "ecc_corrected_count": 3, "row_remap_pending": True, "recovery_action": "gpu_reset"},),
        "xids": {BUSY: Xid(79, end_ms - 60_000)},
        "publishing": PublishingStatus(last_success_ms=end_ms - 30_000, waiting_rows=120, spool_bytes=65536),
    }  # fmt: skip
    return Snapshot(**(known | values))


def mig_snapshot(end_ms: int) -> Snapshot:
    """One GPU split into two MIG instances, of which one is held without work."""
    parent, busy, held = "GPU-aaaa", "MIG-1111", "MIG-2222"
    devices = {
        parent: device_row(parent, 0, mig_enabled=True),
        busy: device_row(busy, None, parent_gpu=parent, mig_profile="3g.40gb", gpu_instance_id=1,
                         mem_total_bytes=40 * GIB, power_limit_w=None),
        held: device_row(held, None, parent_gpu=parent, mig_profile="1g.10gb", gpu_instance_id=7,
                         mem_total_bytes=10 * GIB, power_limit_w=None),
    }  # fmt: skip
    rows = (
        gpu_row(parent, end_ms, util_source="none", power_w=300.0, temperature_c=50),
        gpu_row(
            busy,
            end_ms,
            util_source="gpm",
            gpu_util_pct=55.5,
            sm_active_pct=50.0,
            process_count=1,
            mem_used_bytes=30 * GIB,
        ),
        gpu_row(
            held,
            end_ms,
            util_source="gpm",
            gpu_util_pct=0.0,
            sm_active_pct=0.0,
            process_count=1,
            mem_used_bytes=8 * GIB,
        ),
    )
    processes = (process_row(busy, 11, "ada"), process_row(held, 12, "grace", mem_used_bytes=8 * GIB))
    idle = {parent: None, busy: None, held: end_ms - 600_000}
    return snapshot(
        end_ms, gpus=rows, devices=devices, processes=processes, idle_since_ms=idle, serving=(), errors=(), xids={}
    )
