"""Typed rows of the tables that the agent writes. Written by `make docs` from fallow/schema; do not edit.

A column that is left out or None is unknown. Times are milliseconds since the epoch. Units stand in the names;
`fallow schema` says what each column means.
"""

from __future__ import annotations

from typing import TypeAlias, TypedDict


class GpuRow(TypedDict, total=False):
    """A row of the `gpu` table."""

    time: int
    gpu: str
    interval_ms: int
    offset_ms: int | None
    read_delay_ms: int | None
    health: str
    util_source: str | None
    gpu_util_pct: float | None
    gpu_util_max_pct: float | None
    gpu_util_p98_pct: float | None
    gpu_util_zero_ratio: float | None
    gpu_util_coverage_ratio: float | None
    gpu_util_unsampled_ratio: float | None
    mem_util_pct: float | None
    sm_active_pct: float | None
    sm_occupancy_pct: float | None
    tensor_active_pct: float | None
    dram_active_pct: float | None
    fp64_active_pct: float | None
    fp32_active_pct: float | None
    fp16_active_pct: float | None
    pcie_tx_bytes_per_s: float | None
    pcie_rx_bytes_per_s: float | None
    nvlink_tx_bytes_per_s: float | None
    nvlink_rx_bytes_per_s: float | None
    mem_used_bytes: int | None
    mem_reserved_bytes: int | None
    power_w: float | None
    energy_mj: int | None
    counters_since: int | None
    throttled_power_cap_ms: int | None
    throttled_sync_boost_ms: int | None
    throttled_sw_thermal_ms: int | None
    throttled_hw_thermal_ms: int | None
    throttled_power_brake_ms: int | None
    temperature_c: int | None
    mem_temperature_c: int | None
    sm_clock_mhz: int | None
    mem_clock_mhz: int | None
    throttle_reasons: int | None
    encoder_util_pct: int | None
    decoder_util_pct: int | None
    process_count: int | None


class ProcessRow(TypedDict, total=False):
    """A row of the `process` table."""

    time: int
    gpu: str
    interval_ms: int
    pid: int
    started: int | None
    kind: str
    mem_used_bytes: int | None
    user: str | None
    command: str | None
    parent_pid: int | None
    cpu_util_pct: float | None
    host_mem_bytes: int | None
    arguments: str | None
    container_runtime: str | None
    container_id: str | None
    container: str | None
    pod_labels: str | None
    pod: str | None
    namespace: str | None
    slurm_job_id: str | None
    slurm_step_id: str | None
    slurm_account: str | None
    ray_job_id: str | None
    unit: str | None
    attribution: str | None


class HostRow(TypedDict, total=False):
    """A row of the `host` table."""

    time: int
    interval_ms: int
    cpu_util_pct: float | None
    cpu_count: int | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    swap_used_bytes: int | None
    cpu_pressure_pct: float | None
    mem_pressure_pct: float | None
    io_pressure_pct: float | None
    disk_read_bytes_per_s: float | None
    disk_write_bytes_per_s: float | None
    net_receive_bytes_per_s: float | None
    net_transmit_bytes_per_s: float | None


class DeviceRow(TypedDict, total=False):
    """A row of the `device` table."""

    time: int
    gpu: str
    parent_gpu: str | None
    gpu_index: int | None
    model: str | None
    mem_total_bytes: int | None
    power_limit_w: float | None
    pci_bus_id: str | None
    driver_version: str | None
    cuda_driver_version: str | None
    mig_enabled: bool | None
    mig_profile: str | None
    mig_gpu_slices: int | None
    gpu_instance_id: int | None
    serial: str | None
    minor_number: int | None
    architecture: str | None
    compute_capability: str | None
    numa_node: int | None
    nvlink_island: str | None
    pool: str | None
    source: str | None


class ServingRow(TypedDict, total=False):
    """A row of the `serving` table."""

    time: int
    interval_ms: int
    endpoint: str | None
    model: str | None
    engine: str | None
    health: str
    namespace: str | None
    pod: str | None
    gpu: str | None
    pid: int | None
    kv_cache_used_ratio: float | None
    running_requests: float | None
    waiting_requests: float | None
    requests_per_s: float | None
    prompt_tokens_per_s: float | None
    generated_tokens_per_s: float | None
    time_to_first_token_s: float | None


class EventRow(TypedDict, total=False):
    """A row of the `event` table."""

    time: int | None
    gpu: str | None
    kind: str
    code: int | None
    detail: str | None


class AgentRow(TypedDict, total=False):
    """A row of the `agent` table."""

    time: int
    interval_ms: int
    version: str | None
    supervisor_cpu_ms: float | None
    worker_cpu_ms: float | None
    supervisor_rss_bytes: int | None
    worker_rss_bytes: int | None
    nvml_calls: int | None
    nvml_busy_ms: float | None
    nvml_slowest_ms: float | None
    nvml_slowest_call: str | None
    missed_intervals: int | None
    spool_rows: int | None
    spool_bytes: int | None
    memory_rows: int | None
    sees_all_processes: bool | None


class AllocationRow(TypedDict, total=False):
    """A row of the `allocation` table."""

    time: int
    gpu: str | None
    end: int | None
    allocation_id: str | None
    scheduler: str | None
    user: str | None
    account: str | None
    name: str | None
    gpu_count: int | None
    host_gpu_count: int | None
    gpu_share_ratio: float | None
    partition: str | None
    qos: str | None
    state: str | None
    submitted: int | None
    planned_end: int | None
    eligible: int | None
    time_limit_s: int | None
    priority: int | None
    project: str | None
    host_count: int | None
    gpu_model: str | None
    reason: str | None
    gpu_shares: str | None
    accounted_ratio: float | None
    accounted_util_pct: float | None
    accounted_peak_pct: float | None
    accounted_mem_bytes: float | None


class Rows(TypedDict, total=False):
    """Rows by table."""

    gpu: list[GpuRow]
    process: list[ProcessRow]
    host: list[HostRow]
    device: list[DeviceRow]
    serving: list[ServingRow]
    event: list[EventRow]
    agent: list[AgentRow]
    allocation: list[AllocationRow]


AnyRow: TypeAlias = GpuRow | ProcessRow | HostRow | DeviceRow | ServingRow | EventRow | AgentRow | AllocationRow
"""A row of any table that the agent writes."""
