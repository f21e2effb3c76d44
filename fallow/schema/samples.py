"""Tables that are observed: what the agent, the importers and the schedulers write."""

from __future__ import annotations

from fallow.schema.types import Column, Table, Type

_GRID = "the agent's interval grid, or the imported file"

TIME = Column("time", Type.TIMESTAMP, "start of the interval that the row describes", _GRID, "UTC", "1 ms", key=True)
GPU_ID = Column(
    "gpu", Type.STRING, "UUID of the GPU or MIG instance; an imported series' own name", "nvmlDeviceGetUUID", key=True,
    dictionary=True,
)  # fmt: skip
INTERVAL = Column("interval_ms", Type.INT32, "length of the interval", "agent setting or importer", "ms", "1 ms")

GPU = Table(
    "gpu",
    "one GPU in one interval (default 10 s); MIG instances will be rows of their own, the agent does not write them yet",
    derived=False,
    columns=(
        TIME,
        GPU_ID,
        INTERVAL,
        Column("offset_ms", Type.INT32, "true start of the observation minus `time`", _GRID, "ms", "1 ms"),
        Column("read_delay_ms", Type.INT32, "when memory, power, energy, clocks and processes were read, after the interval's end",
               "agent's clock", "ms", "1 ms"),
        Column("health", Type.STRING, "ok, degraded, lost, reset_required, wedged or driver_down",
               "NVML return codes", dictionary=True),
        Column("util_source", Type.STRING, "gpm, samples, rates, none, import or simulated: where utilization is from",
               "agent or importer", dictionary=True),
        Column("gpu_util_pct", Type.FLOAT, "mean share of time in which at least one kernel ran",
               "time-weighted nvmlDeviceGetSamples(GPU_UTILIZATION), else nvmlDeviceGetUtilizationRates", "%", "0.01 %"),
        Column("gpu_util_max_pct", Type.FLOAT, "largest utilization sample in the interval", "as gpu_util_pct", "%", "1 %"),
        Column("gpu_util_zero_ratio", Type.FLOAT, "share of the covered time whose utilization was 0", "as gpu_util_pct",
               "1", "0.0001"),
        Column("gpu_util_coverage_ratio", Type.FLOAT, "share of the interval that utilization was observed in",
               "as gpu_util_pct", "1", "0.0001"),
        Column("gpu_util_unsampled_ratio", Type.FLOAT,
               "share of the interval counted as 0 because the driver, drained in time, had taken no sample (idle GPU)",
               "nvmlDeviceGetSamples NOT_FOUND and a rate of 0", "1", "0.0001"),
        Column("mem_util_pct", Type.FLOAT, "mean share of time in which device memory was read or written",
               "time-weighted nvmlDeviceGetSamples(MEMORY_UTILIZATION)", "%", "0.01 %"),
        Column("sm_active_pct", Type.FLOAT, "mean share of SMs with at least one warp", "GPM metric 2", "%", "0.1 %"),
        Column("sm_occupancy_pct", Type.FLOAT, "mean resident warps over the maximum", "GPM metric 3", "%", "0.1 %"),
        Column("tensor_active_pct", Type.FLOAT, "mean share of time in which a tensor pipe was busy", "GPM metric 5", "%",
               "0.1 %"),
        Column("dram_active_pct", Type.FLOAT, "mean share of peak memory bandwidth", "GPM metric 10", "%", "0.1 %"),
        Column("mem_used_bytes", Type.INT64, "device memory allocated to processes", "nvmlDeviceGetMemoryInfo v2 used",
               "bytes", "1 byte"),
        Column("mem_reserved_bytes", Type.INT64, "device memory kept by the driver itself",
               "nvmlDeviceGetMemoryInfo v2 reserved", "bytes", "1 byte"),
        Column("power_w", Type.FLOAT, "board power at the end of the interval (1 s average on most cards)",
               "nvmlDeviceGetPowerUsage", "W", "0.1 W"),
        Column("energy_mj", Type.INT64, "energy counter since the driver was loaded",
               "nvmlDeviceGetTotalEnergyConsumption", "mJ", "1 mJ"),
        Column("temperature_c", Type.INT16, "GPU die temperature", "nvmlDeviceGetTemperature", "degC", "1 degC"),
        Column("sm_clock_mhz", Type.INT16, "SM clock at the end of the interval", "nvmlDeviceGetClockInfo(SM)", "MHz", "1 MHz"),
        Column("mem_clock_mhz", Type.INT16, "memory clock at the end of the interval", "nvmlDeviceGetClockInfo(MEM)", "MHz",
               "1 MHz"),
        Column("throttle_reasons", Type.INT64, "bit mask of why clocks are held down (NVML's nvmlClocksEventReason bits)",
               "nvmlDeviceGetCurrentClocksEventReasons"),
        Column("process_count", Type.INT16, "processes that held a context on the GPU",
               "length of the NVML process lists", "1", "1"),
    ),
)  # fmt: skip

PROCESS = Table(
    "process",
    "one process on one GPU in one process interval (default 30 s), and at once when the list changes",
    derived=False,
    columns=(
        TIME,
        GPU_ID,
        INTERVAL,
        Column("pid", Type.INT32, "process id as the agent's PID namespace sees it", "NVML process lists", key=True),
        Column("started", Type.TIMESTAMP, "start of the process; with the pid it names one process for ever",
               "/proc/PID/stat", "UTC", "10 ms"),
        Column("kind", Type.STRING, "compute, graphics or mps", "which NVML list named it", key=True, dictionary=True),
        Column("mem_used_bytes", Type.INT64, "device memory that the process holds", "usedGpuMemory", "bytes", "1 byte"),
        Column("user", Type.STRING, "login name, or the numeric id where it has none", "/proc/PID owner", dictionary=True),
        Column("command", Type.STRING, "command name without arguments", "/proc/PID/comm", dictionary=True),
        Column("container_id", Type.STRING, "container that the process runs in", "/proc/PID/cgroup", dictionary=True),
        Column("pod", Type.STRING, "Kubernetes pod", "kubelet pod-resources", dictionary=True),
        Column("namespace", Type.STRING, "Kubernetes namespace", "kubelet pod-resources", dictionary=True),
        Column("slurm_job_id", Type.STRING, "Slurm job", "/proc/PID/cgroup", dictionary=True),
        Column("slurm_account", Type.STRING, "Slurm account", "scontrol", dictionary=True),
        Column("ray_job_id", Type.STRING, "Ray job", "RAY_JOB_ID of the worker", dictionary=True),
        Column("attribution", Type.STRING, "where the owner is from: proc, cgroup, kubelet, slurm, import, simulated",
               "agent or importer", dictionary=True),
    ),
)  # fmt: skip

HOST = Table(
    "host",
    "one host in one interval",
    derived=False,
    columns=(
        TIME,
        INTERVAL,
        Column("cpu_util_pct", Type.FLOAT, "mean busy share of all CPUs", "/proc/stat", "%", "0.1 %"),
        Column("cpu_count", Type.INT16, "online CPUs", "/proc/stat"),
        Column("mem_used_bytes", Type.INT64, "memory in use, total minus available", "/proc/meminfo", "bytes", "1 KiB"),
        Column("mem_total_bytes", Type.INT64, "memory installed", "/proc/meminfo", "bytes", "1 KiB"),
        Column("swap_used_bytes", Type.INT64, "swap in use", "/proc/meminfo", "bytes", "1 KiB"),
        Column("cpu_pressure_pct", Type.FLOAT, "share of time in which some task waited for CPU", "/proc/pressure/cpu", "%"),
        Column("mem_pressure_pct", Type.FLOAT, "share of time in which some task waited for memory", "/proc/pressure/memory",
               "%"),
        Column("io_pressure_pct", Type.FLOAT, "share of time in which some task waited for I/O", "/proc/pressure/io", "%"),
        Column("disk_read_bytes_per_s", Type.DOUBLE, "mean read rate of all disks", "/proc/diskstats", "bytes/s"),
        Column("disk_write_bytes_per_s", Type.DOUBLE, "mean write rate of all disks", "/proc/diskstats", "bytes/s"),
        Column("net_receive_bytes_per_s", Type.DOUBLE, "mean receive rate, loopback excluded", "/proc/net/dev", "bytes/s"),
        Column("net_transmit_bytes_per_s", Type.DOUBLE, "mean transmit rate, loopback excluded", "/proc/net/dev", "bytes/s"),
    ),
)  # fmt: skip

DEVICE = Table(
    "device",
    "the inventory entry of one GPU, written at the agent's start, on change and daily",
    derived=False,
    columns=(
        TIME,
        GPU_ID,
        Column("parent_gpu", Type.STRING, "UUID of the GPU that a MIG instance belongs to",
               "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", dictionary=True),
        Column("gpu_index", Type.INT16, "position in NVML's enumeration (changes over reboots; never a key)",
               "nvmlDeviceGetIndex"),
        Column("model", Type.STRING, "product name", "nvmlDeviceGetName", dictionary=True),
        Column("mem_total_bytes", Type.INT64, "device memory installed", "nvmlDeviceGetMemoryInfo v2 total", "bytes", "1 byte"),
        Column("power_limit_w", Type.FLOAT, "enforced power limit", "nvmlDeviceGetEnforcedPowerLimit", "W", "0.1 W"),
        Column("pci_bus_id", Type.STRING, "PCI address", "nvmlDeviceGetPciInfo", dictionary=True),
        Column("driver_version", Type.STRING, "version of the kernel driver", "nvmlSystemGetDriverVersion", dictionary=True),
        Column("cuda_driver_version", Type.STRING, "newest CUDA that the driver runs",
               "nvmlSystemGetCudaDriverVersion_v2", dictionary=True),
        Column("mig_enabled", Type.BOOL, "whether the GPU is split into MIG instances", "nvmlDeviceGetMigMode"),
        Column("pool", Type.STRING, "the site's own name for the group of hosts", "setting agent.pool", dictionary=True),
        Column("source", Type.STRING, "nvml, import or simulated: who says so", "writer", dictionary=True),
    ),
)  # fmt: skip

EVENT = Table(
    "event",
    "something that happened to a GPU or to the agent",
    derived=False,
    columns=(
        TIME,
        Column("gpu", Type.STRING, "UUID of the GPU; null when the event is the host's", "writer", dictionary=True),
        Column("kind", Type.STRING,
               "agent_start, agent_stop, agent_killed, driver_up, driver_down, worker_restart, gpu_ok, gpu_degraded, "
               "gpu_lost, gpu_reset_required, gpu_wedged, call_unsupported, call_denied, clock_stepped or missed_intervals",
               "writer", dictionary=True, key=True),
        Column("detail", Type.STRING, "one sentence: what was seen", "writer", key=True),
    ),
)  # fmt: skip

AGENT = Table(
    "agent",
    "what the agent itself cost and missed in one interval",
    derived=False,
    columns=(
        TIME,
        INTERVAL,
        Column("version", Type.STRING, "fallow version that wrote the row", "agent", dictionary=True),
        Column("supervisor_cpu_ms", Type.FLOAT, "CPU time of the supervisor", "process times", "ms", "0.1 ms"),
        Column("worker_cpu_ms", Type.FLOAT, "CPU time of the NVML worker", "process times", "ms", "0.1 ms"),
        Column("supervisor_rss_bytes", Type.INT64, "resident memory of the supervisor", "/proc/self/statm", "bytes", "4 KiB"),
        Column("worker_rss_bytes", Type.INT64, "resident memory of the NVML worker", "/proc/PID/statm", "bytes", "4 KiB"),
        Column("nvml_calls", Type.INT32, "driver calls made", "agent", "1", "1"),
        Column("nvml_busy_ms", Type.FLOAT, "wall time spent inside driver calls", "agent", "ms", "0.01 ms"),
        Column("nvml_slowest_ms", Type.FLOAT, "wall time of the slowest driver call", "agent", "ms", "0.01 ms"),
        Column("nvml_slowest_call", Type.STRING, "name of the slowest driver call", "agent", dictionary=True),
        Column("missed_intervals", Type.INT32, "intervals that ended without a row since the last row", "agent", "1", "1"),
        Column("spool_rows", Type.INT64, "rows waiting in the spool", "SQLite", "1", "1"),
    ),
)  # fmt: skip

CLAIM = Table(
    "claim",
    "one GPU that was given to somebody for a time",
    derived=False,
    columns=(
        Column("time", Type.TIMESTAMP, "start of the claim", "scheduler", "UTC", "1 s", key=True),
        Column("gpu", Type.STRING, "UUID of the GPU; null where the scheduler names only a count", "scheduler", key=True,
               dictionary=True),
        Column("end", Type.TIMESTAMP, "end of the claim; null while it runs", "scheduler", "UTC", "1 s"),
        Column("claim_id", Type.STRING, "the scheduler's own id: job, pod or reservation", "scheduler", key=True),
        Column("scheduler", Type.STRING, "slurm, kubernetes, csv or simulated", "writer", dictionary=True),
        Column("user", Type.STRING, "who asked for it", "scheduler", dictionary=True),
        Column("account", Type.STRING, "account or namespace that it is charged to", "scheduler", dictionary=True),
        Column("name", Type.STRING, "the claim's own name", "scheduler", dictionary=True),
        Column("gpu_count", Type.INT32, "GPUs in the whole claim", "scheduler", "1", "1"),
    ),
)  # fmt: skip
