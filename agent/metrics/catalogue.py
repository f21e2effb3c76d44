"""Every metric family as data: its name, type, unit and meaning, and the lake's column that it is read from.

`errors` are the counters of `agent.snapshot.GpuErrors`, not in the lake. Names begin with DCGM where NVIDIA's exporter
has a field of that meaning and unit, so that its dashboards work, else with `fallow_`. docs/metrics.md is
written from this file.
"""

from __future__ import annotations

from fallow.exposition import Family
from fallow.schema import HEALTH_STATES as HEALTH_STATES  # noqa: PLC0414  # every value of one of the families

_MIB = 1 / 2**20
_PERCENT = 0.01
_MS = 0.001
MODES = ("running", "released")


def _dcgm(field: str, unit: str, meaning: str, source: str, factor: float = 1, *, kind: str = "gauge") -> Family:
    return Family(f"DCGM_FI_{field}", unit, meaning, source, factor, kind)


def _prof(field: str, meaning: str, column: str) -> Family:
    return _dcgm(f"PROF_{field}", "ratio", f"{meaning}, mean of the interval", f"gpu.{column}", _PERCENT)


def _rate(field: str, meaning: str, column: str) -> Family:
    return _dcgm(f"PROF_{field}", "bytes/s", f"{meaning}, mean of the interval", f"gpu.{column}")


def _held_down(reason: str, column: str) -> Family:
    meaning = "Time with clocks held down, by reason, since the epoch in fallow_gpu_counters_since_timestamp_seconds"
    return Family(
        "fallow_gpu_throttled_seconds_total", "s", meaning, f"gpu.{column}", _MS, "counter", ("reason", reason)
    )


def _pressure(resource: str, column: str) -> Family:
    meaning = "Share of time in which some task waited for the resource"
    return Family(
        "fallow_host_pressure_ratio", "ratio", meaning, f"host.{column}", _PERCENT, label=("resource", resource)
    )


def _cpu(process: str) -> Family:
    meaning = "CPU time that the agent used in the interval"
    column, label = f"agent.{process}_cpu_ms", ("process", process)
    return Family("fallow_agent_cpu_seconds_per_interval", "s", meaning, column, _MS, label=label)


def _memory(process: str) -> Family:
    column, label = f"agent.{process}_rss_bytes", ("process", process)
    return Family("fallow_agent_resident_memory_bytes", "bytes", "Resident memory of the agent", column, label=label)


UP = Family(
    "fallow_up",
    "0 or 1",
    "Whether the newest interval is at most three intervals old; 0: values of GPUs are left out",
    "agent's clock",
)
INFO = Family("fallow_agent_info", "1", "Version, host and pool of the agent", "agent.version")
MODE = Family("fallow_agent_mode", "0 or 1", "Whether the agent is in the mode `mode`: running or released", "agent")
STARTED = Family("fallow_agent_start_timestamp_seconds", "s", "Start of the agent's run", "agent's clock", _MS)
INTERVAL = Family("fallow_agent_interval_seconds", "s", "Length of an interval", "setting agent.interval", _MS)
SAMPLE_TIME = Family(
    "fallow_sample_timestamp_seconds", "s", "End of the newest interval in which the GPU was watched", "gpu.time", _MS
)
SAMPLE_AGE = Family("fallow_sample_age_seconds", "s", "Age of that interval's end at the scrape", "agent's clock")
GPU_INFO = Family(
    "fallow_gpu_info", "1", "Properties of the GPU: driver, CUDA, architecture, serial, pool", "device table"
)
GPU_HEALTH = Family("fallow_gpu_health", "0 or 1", "Whether the GPU is in the state `health`", "gpu.health")
GPU = (
    _dcgm("DEV_GPU_UTIL", "%", "Share of time in which a kernel ran, mean of the interval", "gpu.gpu_util_pct"),
    _dcgm("DEV_MEM_COPY_UTIL", "%", "Share of time in which device memory was read or written, mean of the interval",
            "gpu.mem_util_pct"),
    _dcgm("DEV_ENC_UTIL", "%", "Share of time in which the video encoder was busy, the driver's newest reading",
            "gpu.encoder_util_pct"),
    _dcgm("DEV_DEC_UTIL", "%", "Share of time in which the video decoder was busy, the driver's newest reading",
            "gpu.decoder_util_pct"),
    _prof("SM_ACTIVE", "Share of SMs with at least one warp", "sm_active_pct"),
    _prof("SM_OCCUPANCY", "Resident warps over the maximum", "sm_occupancy_pct"),
    _prof("PIPE_TENSOR_ACTIVE", "Share of time in which a tensor pipe was busy", "tensor_active_pct"),
    _prof("DRAM_ACTIVE", "Share of peak memory bandwidth", "dram_active_pct"),
    _prof("PIPE_FP64_ACTIVE", "Share of time in which the FP64 pipe was busy", "fp64_active_pct"),
    _prof("PIPE_FP32_ACTIVE", "Share of time in which the FP32 pipe was busy", "fp32_active_pct"),
    _prof("PIPE_FP16_ACTIVE", "Share of time in which the FP16 pipe was busy", "fp16_active_pct"),
    _rate("PCIE_TX_BYTES", "PCIe traffic that the GPU sent", "pcie_tx_bytes_per_s"),
    _rate("PCIE_RX_BYTES", "PCIe traffic that the GPU received", "pcie_rx_bytes_per_s"),
    _rate("NVLINK_TX_BYTES", "NVLink traffic that the GPU sent", "nvlink_tx_bytes_per_s"),
    _rate("NVLINK_RX_BYTES", "NVLink traffic that the GPU received", "nvlink_rx_bytes_per_s"),
    _dcgm("DEV_FB_USED", "MiB", "Device memory allocated to processes", "gpu.mem_used_bytes", _MIB),
    _dcgm("DEV_FB_RESERVED", "MiB", "Device memory kept by the driver itself", "gpu.mem_reserved_bytes", _MIB),
    _dcgm("DEV_POWER_USAGE", "W", "Board power", "gpu.power_w"),
    _dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "mJ", "Energy since the driver was loaded", "gpu.energy_mj", kind="counter"),
    _dcgm("DEV_GPU_TEMP", "degC", "GPU die temperature", "gpu.temperature_c"),
    _dcgm("DEV_MEMORY_TEMP", "degC", "Memory temperature", "gpu.mem_temperature_c"),
    _dcgm("DEV_SM_CLOCK", "MHz", "SM clock", "gpu.sm_clock_mhz"),
    _dcgm("DEV_MEM_CLOCK", "MHz", "Memory clock", "gpu.mem_clock_mhz"),
    _dcgm("DEV_CLOCK_THROTTLE_REASONS", "bits", "Bit mask of the reasons that hold clocks down",
            "gpu.throttle_reasons"),
    Family("fallow_gpu_util_max_ratio", "ratio", "Largest utilization sample in the interval", "gpu.gpu_util_max_pct",
            _PERCENT),
    Family("fallow_gpu_util_zero_ratio", "ratio", "Share of the covered time whose utilization was 0",
            "gpu.gpu_util_zero_ratio"),
    Family("fallow_gpu_util_coverage_ratio", "ratio", "Share of the interval that utilization was observed in",
            "gpu.gpu_util_coverage_ratio"),
    Family("fallow_gpu_util_unsampled_ratio", "ratio",
            "Share of the interval counted as 0 because the driver took no sample", "gpu.gpu_util_unsampled_ratio"),
    Family("fallow_gpu_processes", "1", "Processes with a context on the GPU", "gpu.process_count"),
    Family("fallow_gpu_counters_since_timestamp_seconds", "s", "Start of the epoch of the GPU's counters",
            "gpu.counters_since", _MS),
    _held_down("power_cap", "throttled_power_cap_ms"),
    _held_down("sync_boost", "throttled_sync_boost_ms"),
    _held_down("sw_thermal", "throttled_sw_thermal_ms"),
    _held_down("hw_thermal", "throttled_hw_thermal_ms"),
    _held_down("power_brake", "throttled_power_brake_ms"),
)  # fmt: skip
"""Left out of a GPU that is not watched, of a column that is null and of an interval that is too old."""
UTIL_SOURCE = Family(
    "fallow_gpu_util_source", "1", "Source of utilization: gpm, samples, rates or none", "gpu.util_source"
)
IDLE = Family(
    "fallow_gpu_idle_seconds",
    "s",
    "Observed time without utilization; 0: active, absent: unknown",
    "gpu.gpu_util_pct, over intervals",
)
STALLED = Family(
    "fallow_gpu_stalled_suspect",
    "0 or 1",
    "Whether kernels run without work for agent.stalled_after, by two witnesses at least; absent: too few are known",
    "gpu table, over intervals",
)
DEVICE = (
    _dcgm("DEV_FB_TOTAL", "MiB", "Device memory installed", "device.mem_total_bytes", _MIB),
    _dcgm("DEV_ENFORCED_POWER_LIMIT", "W", "Power limit in force", "device.power_limit_w"),
)
FREE = _dcgm(
    "DEV_FB_FREE",
    "MiB",
    "Device memory installed, without what is used and what is reserved",
    "`device.mem_total_bytes`, `gpu.mem_used_bytes`, `gpu.mem_reserved_bytes`",
    _MIB,
)
GR_ENGINE = _dcgm(
    "PROF_GR_ENGINE_ACTIVE",
    "ratio",
    "DEV_GPU_UTIL as a ratio; only where it is a mean of the whole interval, by GPM or samples",
    "gpu.gpu_util_pct",
    _PERCENT,
)
ERRORS = (
    _dcgm("DEV_ECC_SBE_VOL_TOTAL", "1", "Corrected memory errors since the driver was loaded",
            "errors.ecc_corrected_count", kind="counter"),
    _dcgm("DEV_ECC_DBE_VOL_TOTAL", "1", "Uncorrected memory errors since the driver was loaded",
            "errors.ecc_uncorrected_count", kind="counter"),
    _dcgm("DEV_ECC_SBE_AGG_TOTAL", "1", "Corrected memory errors in the card's life",
            "errors.ecc_corrected_lifetime_count", kind="counter"),
    _dcgm("DEV_ECC_DBE_AGG_TOTAL", "1", "Uncorrected memory errors in the card's life",
            "errors.ecc_uncorrected_lifetime_count", kind="counter"),
    _dcgm("DEV_CORRECTABLE_REMAPPED_ROWS", "1", "Memory rows remapped after corrected errors",
            "errors.remapped_rows_corrected_count", kind="counter"),
    _dcgm("DEV_UNCORRECTABLE_REMAPPED_ROWS", "1", "Memory rows remapped after uncorrected errors",
            "errors.remapped_rows_uncorrected_count", kind="counter"),
    _dcgm("DEV_ROW_REMAP_PENDING", "0 or 1", "Whether a remap waits for a GPU reset", "errors.row_remap_pending"),
    _dcgm("DEV_ROW_REMAP_FAILURE", "0 or 1", "Whether a remap has failed", "errors.row_remap_failed"),
    _dcgm("DEV_PCIE_REPLAY_COUNTER", "1", "PCIe packets sent again", "errors.pcie_replay_count", kind="counter"),
)  # fmt: skip
RECOVERY = Family(
    "fallow_gpu_recovery_action",
    "1",
    "Recovery that the driver requests; absent without a request",
    "errors.recovery_action",
)
XID = _dcgm("DEV_XID_ERRORS", "code", "Newest XID; absent while the agent has seen none", "event.code")
XID_TIME = Family("fallow_gpu_xid_timestamp_seconds", "s", "Time of the newest XID", "event.time", _MS)
PROCESS_INFO = Family(
    "fallow_process_info", "1", "User, command, container, pod and job of a process on the GPU", "process table"
)
PROCESS = (
    Family("fallow_process_gpu_memory_bytes", "bytes", "Device memory that the process holds",
            "process.mem_used_bytes"),
    Family("fallow_process_cpu_util_ratio", "ratio", "CPU use of the process; 1 is one CPU", "process.cpu_util_pct",
            _PERCENT),
    Family("fallow_process_resident_memory_bytes", "bytes", "Host memory of the process", "process.host_mem_bytes"),
)  # fmt: skip
HOST = (
    Family("fallow_host_cpu_util_ratio", "ratio", "Busy share of all CPUs", "host.cpu_util_pct", _PERCENT),
    Family("fallow_host_cpus", "1", "Online CPUs", "host.cpu_count"),
    Family("fallow_host_memory_used_bytes", "bytes", "Memory in use: total minus available", "host.mem_used_bytes"),
    Family("fallow_host_memory_total_bytes", "bytes", "Memory installed", "host.mem_total_bytes"),
    Family("fallow_host_swap_used_bytes", "bytes", "Swap in use", "host.swap_used_bytes"),
    _pressure("cpu", "cpu_pressure_pct"),
    _pressure("memory", "mem_pressure_pct"),
    _pressure("io", "io_pressure_pct"),
    Family("fallow_host_disk_read_bytes_per_second", "bytes/s", "Read rate of all disks", "host.disk_read_bytes_per_s"),
    Family("fallow_host_disk_write_bytes_per_second", "bytes/s", "Write rate of all disks",
            "host.disk_write_bytes_per_s"),
    Family("fallow_host_network_receive_bytes_per_second", "bytes/s", "Receive rate without loopback",
            "host.net_receive_bytes_per_s"),
    Family("fallow_host_network_transmit_bytes_per_second", "bytes/s", "Transmit rate without loopback",
            "host.net_transmit_bytes_per_s"),
)  # fmt: skip
SERVING_UP = Family(
    "fallow_serving_up", "0 or 1", "Whether the inference server answered and was understood", "serving.health"
)
SERVING_GPU = Family("fallow_serving_gpu_info", "1", "A GPU that the server's processes hold", "serving.gpu")
SERVING = (
    Family("fallow_serving_kv_cache_used_ratio", "ratio", "Share of the KV cache in use",
            "serving.kv_cache_used_ratio"),
    Family("fallow_serving_running_requests", "1", "Requests being served", "serving.running_requests"),
    Family("fallow_serving_waiting_requests", "1", "Requests in the queue", "serving.waiting_requests"),
    Family("fallow_serving_requests_per_second", "1/s", "Requests finished", "serving.requests_per_s"),
    Family("fallow_serving_prompt_tokens_per_second", "1/s", "Prompt tokens", "serving.prompt_tokens_per_s"),
    Family("fallow_serving_generated_tokens_per_second", "1/s", "Generated tokens", "serving.generated_tokens_per_s"),
)  # fmt: skip
AGENT = (
    _cpu("supervisor"),
    _cpu("worker"),
    _memory("supervisor"),
    _memory("worker"),
    Family("fallow_agent_driver_calls", "1", "Driver calls made in the interval", "agent.nvml_calls"),
    Family("fallow_agent_driver_seconds", "s", "Wall time inside driver calls in the interval", "agent.nvml_busy_ms",
            _MS),
    Family("fallow_agent_driver_slowest_call_seconds", "s", "Wall time of the interval's slowest driver call",
            "agent.nvml_slowest_ms", _MS),
    Family("fallow_agent_missed_intervals", "1", "Intervals without a row since the row before",
            "agent.missed_intervals"),
    Family("fallow_agent_memory_rows", "1", "Rows that a full disk holds back in memory", "agent.memory_rows"),
    Family("fallow_agent_sees_all_processes", "0 or 1", "Whether the PID namespace shows every process on the GPUs",
            "agent.sees_all_processes"),
)  # fmt: skip
PUBLISHED = Family(
    "fallow_publish_last_success_timestamp_seconds", "s", "Time at which rows last reached the lake", "publisher", _MS
)
FAILING = Family("fallow_publish_failing", "0 or 1", "Whether the newest attempt to publish failed", "publisher")
FAILING_SINCE = Family(
    "fallow_publish_failing_since_timestamp_seconds", "s", "Time of the first failure in a row", "publisher", _MS
)
NAME_CONFLICT = Family(
    "fallow_publish_host_name_conflict", "0 or 1", "Whether another agent of this host's name is there", "publisher"
)
SPOOL_ROWS = Family("fallow_spool_rows", "1", "Rows waiting to be published", "agent.spool_rows")
SPOOL_BYTES = Family("fallow_spool_bytes", "bytes", "Size of the spool on disk", "agent.spool_bytes")
