"""Tables that are observed: what the agent, the importers and the schedulers write."""

from __future__ import annotations

from fallow.schema.types import LakeColumn, LakeTable, Type

_GRID = "the agent's interval grid, or the imported file"

TIME = LakeColumn("time", Type.TIMESTAMP, "start of the interval that the row describes", _GRID, "1 ms", key=True)
GPU_ID = LakeColumn(
    "gpu",
    Type.STRING,
    "UUID of the GPU or MIG instance; host/pci-address or host/gpu-position of a GPU that never reported one; "
    "host/index or host/name of an import without UUIDs",
    "nvmlDeviceGetUUID",
    key=True,
)
INTERVAL = LakeColumn("interval_ms", Type.INT32, "length of the interval", "agent setting or importer", "1 ms")

GPU = LakeTable(
    "gpu",
    "one GPU or MIG instance in one interval (default 10 s); power, energy and temperature stay with the parent GPU",
    derived=False,
    columns=(
        TIME,
        GPU_ID,
        INTERVAL,
        LakeColumn("offset_ms", Type.INT32, "true start of the observation minus `time`", _GRID, "1 ms"),
        LakeColumn("read_delay_ms", Type.INT32,
               "delay from the end of the interval to the reading of memory, power, energy, clocks and processes",
               "agent's clock", "1 ms"),
        LakeColumn("health", Type.STRING,
               "ok, degraded, lost, missing (expected, but the driver does not list it or cannot open it), "
               "reset_required, wedged (a driver call does not return, or ends its process), driver_down, released "
               "(readings stop: the agent has released the driver, or a scraped series has ended), asleep or unknown "
               "(no observation in the interval: the agent or its worker did not run)",
               "NVML return codes, agent, the kernel's runtime power status"),
        LakeColumn("util_source", Type.STRING,
               "source of utilization: gpm, samples, rates, none, import, scraped (from a metrics server) or simulated",
               "agent or importer"),
        LakeColumn("gpu_util_pct", Type.FLOAT, "mean share of time in which at least one kernel ran",
               "time-weighted nvmlDeviceGetSamples(GPU_UTILIZATION) where they cover the interval, else GPM metric 1, "
               "else nvmlDeviceGetUtilizationRates; one source for all gpu_util_ columns of a row", "0.01 %"),
        LakeColumn("gpu_util_max_pct", Type.FLOAT,
               "largest utilization sample in the interval; null where GPM has only a mean", "as gpu_util_pct", "1 %"),
        LakeColumn("gpu_util_p98_pct", Type.FLOAT,
               "value that utilization samples do not exceed for 98 % of the covered time",
               "time-weighted nvmlDeviceGetSamples(GPU_UTILIZATION), else nvmlDeviceGetUtilizationRates", "1 %"),
        LakeColumn("gpu_util_zero_ratio", Type.FLOAT, "share of the covered time with a utilization of 0",
               "as gpu_util_pct", "0.0001"),
        LakeColumn("gpu_util_coverage_ratio", Type.FLOAT, "share of the interval in which utilization was observed",
               "as gpu_util_pct", "0.0001"),
        LakeColumn("gpu_util_unsampled_ratio", Type.FLOAT,
               "share of the interval counted as 0 because the driver took no sample (idle GPU) although the ring was "
               "read in time", "nvmlDeviceGetSamples NOT_FOUND and a rate of 0", "0.0001"),
        LakeColumn("mem_util_pct", Type.FLOAT, "mean share of time in which device memory was read or written",
               "time-weighted nvmlDeviceGetSamples(MEMORY_UTILIZATION)", "0.01 %"),
        LakeColumn("sm_active_pct", Type.FLOAT, "mean share of SMs with at least one warp", "GPM metric 2", "0.1 %"),
        LakeColumn("sm_occupancy_pct", Type.FLOAT, "mean resident warps over the maximum", "GPM metric 3", "0.1 %"),
        LakeColumn("tensor_active_pct", Type.FLOAT, "mean share of time in which a tensor pipe was busy",
               "GPM metric 5", "0.1 %"),
        LakeColumn("dram_active_pct", Type.FLOAT, "mean share of peak memory bandwidth", "GPM metric 10", "0.1 %"),
        LakeColumn("fp64_active_pct", Type.FLOAT, "mean share of time in which the FP64 pipe was busy",
               "GPM metric 11", "0.1 %"),
        LakeColumn("fp32_active_pct", Type.FLOAT, "mean share of time in which the FP32 pipe was busy",
               "GPM metric 12", "0.1 %"),
        LakeColumn("fp16_active_pct", Type.FLOAT, "mean share of time in which the FP16 pipe was busy",
               "GPM metric 13", "0.1 %"),
        LakeColumn("pcie_tx_bytes_per_s", Type.DOUBLE, "mean PCIe traffic that the GPU sent",
               "GPM metric 20", "1 MiB/s"),
        LakeColumn("pcie_rx_bytes_per_s", Type.DOUBLE, "mean PCIe traffic that the GPU received",
               "GPM metric 21", "1 MiB/s"),
        LakeColumn("nvlink_tx_bytes_per_s", Type.DOUBLE, "mean NVLink traffic that the GPU sent",
               "GPM metric 61", "1 MiB/s"),
        LakeColumn("nvlink_rx_bytes_per_s", Type.DOUBLE, "mean NVLink traffic that the GPU received", "GPM metric 60",
               "1 MiB/s"),
        LakeColumn("mem_used_bytes", Type.INT64, "device memory allocated to processes",
               "nvmlDeviceGetMemoryInfo v2 used", "1 byte"),
        LakeColumn("mem_reserved_bytes", Type.INT64, "device memory kept by the driver itself",
               "nvmlDeviceGetMemoryInfo v2 reserved", "1 byte"),
        LakeColumn("power_w", Type.FLOAT, "board power at the end of the interval (1 s average on most cards)",
               "nvmlDeviceGetPowerUsage", "0.1 W"),
        LakeColumn("energy_mj", Type.INT64, "energy counter since the driver was loaded",
               "nvmlDeviceGetTotalEnergyConsumption", "1 mJ", counter=True),
        LakeColumn("counters_since", Type.TIMESTAMP,
               "start of the epoch: energy_mj and the throttled_ columns climb from one zero in all rows of one epoch; "
               "a reboot, driver reload or GPU reset begins a new one", "agent", "1 ms"),
        LakeColumn("throttled_power_cap_ms", Type.INT64, "time with clocks held down by the power cap, a counter",
               "field 74", "1 ms", counter=True),
        LakeColumn("throttled_sync_boost_ms", Type.INT64,
               "time with clocks held down by another GPU of its boost group, a counter",
               "field 76", "1 ms", counter=True),
        LakeColumn("throttled_sw_thermal_ms", Type.INT64,
               "time with clocks held down by the driver because of heat, a counter",
               "field 269, by drivers before 580.82 251", "1 ms", counter=True),
        LakeColumn("throttled_hw_thermal_ms", Type.INT64,
               "time with clocks held down by the hardware because of heat, a counter",
               "field 270, by drivers before 580.82 252", "1 ms", counter=True),
        LakeColumn("throttled_power_brake_ms", Type.INT64, "time with clocks held down by the power brake, a counter",
               "field 271, by drivers before 580.82 253", "1 ms", counter=True),
        LakeColumn("temperature_c", Type.INT16, "GPU die temperature", "nvmlDeviceGetTemperature", "1 degC"),
        LakeColumn("mem_temperature_c", Type.INT16, "memory temperature", "field 82", "1 degC"),
        LakeColumn("sm_clock_mhz", Type.INT16, "SM clock at the end of the interval",
               "nvmlDeviceGetClockInfo(SM)", "1 MHz"),
        LakeColumn("mem_clock_mhz", Type.INT16, "memory clock at the end of the interval",
               "nvmlDeviceGetClockInfo(MEM)", "1 MHz"),
        LakeColumn("throttle_reasons", Type.INT64,
               "bit mask of why clocks are held down (NVML's nvmlClocksEventReason bits)",
               "nvmlDeviceGetCurrentClocksEventReasons"),
        LakeColumn("encoder_util_pct", Type.INT16,
               "share of time in which the video encoder was busy, over the driver's last sampling period",
               "nvmlDeviceGetEncoderUtilization", "1 %"),
        LakeColumn("decoder_util_pct", Type.INT16,
               "share of time in which the video decoder was busy, over the driver's last sampling period",
               "nvmlDeviceGetDecoderUtilization", "1 %"),
        LakeColumn("process_count", Type.INT16,
               "processes that held a context on the GPU; null where the PID namespace may hide some",
               "length of the NVML process lists", "1", "1"),
    ),
)  # fmt: skip

PROCESS = LakeTable(
    "process",
    "one process on one GPU in one process interval (default 30 s), and at once when the list changes",
    derived=False,
    columns=(
        TIME,
        GPU_ID,
        INTERVAL,
        LakeColumn("pid", Type.INT32, "process id as the agent's PID namespace sees it",
               "NVML process lists", key=True),
        LakeColumn("started", Type.TIMESTAMP, "start of the process; with the pid a unique name of the process",
               "/proc/PID/stat", "10 ms"),
        LakeColumn("kind", Type.STRING, "compute, graphics or mps", "which NVML list named it", key=True),
        LakeColumn("mem_used_bytes", Type.INT64, "device memory that the process holds", "usedGpuMemory", "1 byte"),
        LakeColumn("user", Type.STRING, "login name, or the numeric id where it has none",
               "/proc/PID/status, user directory"),
        LakeColumn("command", Type.STRING, "command name without arguments", "/proc/PID/comm"),
        LakeColumn("parent_pid", Type.INT32, "parent process (1: its own parent has ended)", "/proc/PID/stat"),
        LakeColumn("cpu_util_pct", Type.FLOAT, "mean CPU use since the previous reading; 100 is one CPU",
               "/proc/PID/stat", "0.1 %"),
        LakeColumn("host_mem_bytes", Type.INT64, "resident host memory", "/proc/PID/stat", "4 KiB"),
        LakeColumn("arguments", Type.STRING, "command line, secrets masked; only where agent.command_arguments is on",
               "/proc/PID/cmdline"),
        LakeColumn("container_runtime", Type.STRING,
               "docker, containerd, cri-o, podman, lxc (also LXD and Incus) or systemd-nspawn", "/proc/PID/cgroup"),
        LakeColumn("container_id", Type.STRING, "container that the process runs in", "/proc/PID/cgroup"),
        LakeColumn("container", Type.STRING,
               "name of the container: in its pod, or on a host of LXC, LXD, Incus or systemd-nspawn",
               "kubelet, /proc/PID/cgroup"),
        LakeColumn("pod_labels", Type.STRING, "labels of the pod as a JSON object", "kubelet"),
        LakeColumn("pod", Type.STRING, "Kubernetes pod", "kubelet pod-resources"),
        LakeColumn("namespace", Type.STRING, "Kubernetes namespace", "kubelet pod-resources"),
        LakeColumn("slurm_job_id", Type.STRING, "Slurm job",
               "/proc/PID/cgroup, else SLURM_JOB_ID of the process, else scontrol"),
        LakeColumn("slurm_step_id", Type.STRING, "step of the Slurm job", "/proc/PID/cgroup"),
        LakeColumn("slurm_account", Type.STRING, "Slurm account", "SLURM_JOB_ACCOUNT of the process, else scontrol"),
        LakeColumn("ray_job_id", Type.STRING, "Ray job; null for workers that Ray started before any job",
               "RAY_JOB_ID of the worker"),
        LakeColumn("unit", Type.STRING,
               "systemd service that the process runs in, such as vllm.service; null for processes of Slurm and "
               "Kubernetes", "/proc/PID/cgroup"),
        LakeColumn("attribution", Type.STRING,
               "sources of the user, joined by +: proc, cgroup, environ, pod_resources, kubelet, scontrol, import, "
               "simulated; hidden where /proc does not show the process", "agent or importer"),
    ),
)  # fmt: skip

HOST = LakeTable(
    "host",
    "one host in one interval",
    derived=False,
    columns=(
        TIME,
        INTERVAL,
        LakeColumn("cpu_util_pct", Type.FLOAT, "mean busy share of all CPUs; waiting for I/O counts as idle",
               "/proc/stat", "0.1 %"),
        LakeColumn("cpu_count", Type.INT16, "online CPUs", "/proc/stat"),
        LakeColumn("mem_used_bytes", Type.INT64, "memory in use, total minus available", "/proc/meminfo", "1 KiB"),
        LakeColumn("mem_total_bytes", Type.INT64, "memory installed", "/proc/meminfo", "1 KiB"),
        LakeColumn("swap_used_bytes", Type.INT64, "swap in use", "/proc/meminfo", "1 KiB"),
        LakeColumn("cpu_pressure_pct", Type.FLOAT, "share of time in which some task waited for CPU",
               "/proc/pressure/cpu", "0.01 %"),
        LakeColumn("mem_pressure_pct", Type.FLOAT, "share of time in which some task waited for memory",
               "/proc/pressure/memory", "0.01 %"),
        LakeColumn("io_pressure_pct", Type.FLOAT, "share of time in which some task waited for I/O",
               "/proc/pressure/io", "0.01 %"),
        LakeColumn("disk_read_bytes_per_s", Type.DOUBLE, "mean read rate of all physical disks", "/proc/diskstats"),
        LakeColumn("disk_write_bytes_per_s", Type.DOUBLE, "mean write rate of all physical disks", "/proc/diskstats"),
        LakeColumn("net_receive_bytes_per_s", Type.DOUBLE, "mean receive rate of all network cards, without RDMA",
               "/sys/class/net"),
        LakeColumn("net_transmit_bytes_per_s", Type.DOUBLE, "mean transmit rate of all network cards, without RDMA",
               "/sys/class/net"),
    ),
)  # fmt: skip

DEVICE = LakeTable(
    "device",
    "the inventory entry of one GPU, written at the agent's start, on change and daily",
    derived=False,
    columns=(
        TIME,
        GPU_ID,
        LakeColumn("parent_gpu", Type.STRING, "UUID of the GPU that a MIG instance belongs to",
               "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"),
        LakeColumn("gpu_index", Type.INT16, "position in NVML's enumeration (changes over reboots; never a key)",
               "nvmlDeviceGetIndex"),
        LakeColumn("model", Type.STRING, "product name", "nvmlDeviceGetName"),
        LakeColumn("mem_total_bytes", Type.INT64, "device memory installed",
               "nvmlDeviceGetMemoryInfo v2 total", "1 byte"),
        LakeColumn("power_limit_w", Type.FLOAT, "enforced power limit", "nvmlDeviceGetEnforcedPowerLimit", "0.1 W"),
        LakeColumn("pci_bus_id", Type.STRING, "PCI address", "nvmlDeviceGetPciInfo"),
        LakeColumn("driver_version", Type.STRING, "version of the kernel driver", "nvmlSystemGetDriverVersion"),
        LakeColumn("cuda_driver_version", Type.STRING, "newest CUDA that the driver runs",
               "nvmlSystemGetCudaDriverVersion_v2"),
        LakeColumn("mig_enabled", Type.BOOL, "whether the GPU is split into MIG instances", "nvmlDeviceGetMigMode"),
        LakeColumn("mig_profile", Type.STRING, "profile of the MIG instance, such as 1g.10gb", "nvmlDeviceGetName"),
        LakeColumn("mig_gpu_slices", Type.INT16, "GPU slices of the MIG instance", "nvmlDeviceGetAttributes_v2"),
        LakeColumn("gpu_instance_id", Type.INT16, "id of the GPU instance in its parent", "nvmlDeviceGetGpuInstanceId"),
        LakeColumn("serial", Type.STRING, "serial number of the board", "nvmlDeviceGetSerial"),
        LakeColumn("minor_number", Type.INT16, "N of /dev/nvidiaN", "nvmlDeviceGetMinorNumber"),
        LakeColumn("architecture", Type.STRING, "generation of the chip, such as hopper", "nvmlDeviceGetArchitecture"),
        LakeColumn("compute_capability", Type.STRING, "CUDA compute capability, such as 9.0",
               "nvmlDeviceGetCudaComputeCapability"),
        LakeColumn("numa_node", Type.INT16, "NUMA node of the CPUs nearest to the GPU", "/sys/bus/pci/devices"),
        LakeColumn("nvlink_island", Type.STRING, "lowest UUID of the host's GPUs that reach one another over NVLink",
               "nvmlDeviceGetP2PStatus(NVLINK)"),
        LakeColumn("pool", Type.STRING, "name of the pool of hosts", "setting agent.pool"),
        LakeColumn("source", Type.STRING,
               "nvml, import, scraped (from a metrics server) or simulated; for a GPU without a UUID the source that "
               "expects it: nvml, pci or setting", "writer"),
    ),
)  # fmt: skip

EVENT = LakeTable(
    "event",
    "something that happened to a GPU or to the agent",
    derived=False,
    columns=(
        TIME,
        LakeColumn("gpu", Type.STRING, "UUID of the GPU; null when the event is the host's", "writer"),
        LakeColumn(
            "kind",
            Type.STRING,
            "agent_start, agent_stop, agent_failed, agent_killed, part_failed, metrics_failed, config_reloaded,"
            " config_rejected, clock_stepped, missed_intervals; driver_up, driver_down, worker_restart, released,"
            " resumed; gpu_ok, gpu_degraded, gpu_lost, gpu_missing, gpu_reset_required, gpu_wedged, gpu_asleep,"
            " gpu_added, gpu_removed, mig_changed, counters_restarted, stalled_suspect, stalled_over, call_unsupported,"
            " call_denied; xid, ecc_uncorrected, row_remap_pending, row_remap_failed, recovery_action; pid_namespace,"
            " attribution_failed, serving_failed; disk_full, spool_failed, sampling_thinned, sampling_restored,"
            " rows_dropped, store_down, store_up, lake_repaired, lake_adopted, host_name_taken, rows_set_aside or"
            " spool_copied",
            "writer",
            key=True,
        ),
        LakeColumn("code", Type.INT32, "number of the XID", "nvmlEventSetWait_v2"),
        LakeColumn("detail", Type.STRING, "one sentence: what was seen", "writer", key=True),
    ),
)

SERVING = LakeTable(
    "serving",
    "one model of an inference server in one interval, from the server's own metrics",
    derived=False,
    columns=(
        TIME,
        INTERVAL,
        LakeColumn("endpoint", Type.STRING,
               "address of the server's metrics: its URL, or `instance` of a scraped series",
               "setting serving.endpoints, labels", key=True),
        LakeColumn("model", Type.STRING, "model as the server names it; null where it names none",
               "the server's labels", key=True),
        LakeColumn("engine", Type.STRING,
               "vllm, sglang, triton, tensorrt-llm, tgi, dynamo or ray serve; null where nothing was recognised",
               "metric names"),
        LakeColumn("health", Type.STRING, "ok, unreachable or unrecognised", "agent or importer"),
        LakeColumn("namespace", Type.STRING,
               "namespace of the server's pod, where a scraped series or the kubelet names it", "labels, kubelet"),
        LakeColumn("pod", Type.STRING, "the server's pod, where a scraped series or the kubelet names it",
               "labels, kubelet"),
        LakeColumn("gpu", Type.STRING,
               "UUID of a GPU that the server's processes hold, one row per GPU; null where unmatched",
               "listening port, /proc, NVML process lists; of a pod, its GPUs", key=True),
        LakeColumn("pid", Type.INT32, "process that listens on the endpoint's port", "/proc/net/tcp, /proc/PID/fd"),
        LakeColumn("kv_cache_used_ratio", Type.FLOAT, "share of the KV cache in use at the time of the scrape",
               "server metric", "0.0001"),
        LakeColumn("running_requests", Type.FLOAT, "requests being served at the time of the scrape",
               "server metric", "1", "1"),
        LakeColumn("waiting_requests", Type.FLOAT, "requests in the queue at the time of the scrape",
               "server metric", "1", "1"),
        LakeColumn("requests_per_s", Type.DOUBLE, "requests finished per second since the previous scrape",
               "server counter", "1 per scrape"),
        LakeColumn("prompt_tokens_per_s", Type.DOUBLE, "prompt tokens per second since the previous scrape",
               "server counter", "1 per scrape"),
        LakeColumn("generated_tokens_per_s", Type.DOUBLE, "generated tokens per second since the previous scrape",
               "server counter", "1 per scrape"),
        LakeColumn("time_to_first_token_s", Type.FLOAT,
               "mean time to the first token of the answers that began since the previous scrape; null without one",
               "server histogram", "0.001 s"),
    ),
)  # fmt: skip

AGENT = LakeTable(
    "agent",
    "what the agent itself cost and missed in one interval",
    derived=False,
    columns=(
        TIME,
        INTERVAL,
        LakeColumn("version", Type.STRING, "fallow version that wrote the row", "agent"),
        LakeColumn("supervisor_cpu_ms", Type.FLOAT, "CPU time of the supervisor", "process times", "0.1 ms"),
        LakeColumn("worker_cpu_ms", Type.FLOAT, "CPU time of the NVML worker", "process times", "0.1 ms"),
        LakeColumn("supervisor_rss_bytes", Type.INT64, "resident memory of the supervisor",
               "/proc/self/statm", "4 KiB"),
        LakeColumn("worker_rss_bytes", Type.INT64, "resident memory of the NVML worker", "/proc/PID/statm", "4 KiB"),
        LakeColumn("nvml_calls", Type.INT32, "driver calls made", "agent", "1", "1"),
        LakeColumn("nvml_busy_ms", Type.FLOAT, "wall time spent inside driver calls", "agent", "0.01 ms"),
        LakeColumn("nvml_slowest_ms", Type.FLOAT, "wall time of the slowest driver call", "agent", "0.01 ms"),
        LakeColumn("nvml_slowest_call", Type.STRING, "name of the slowest driver call", "agent"),
        LakeColumn("missed_intervals", Type.INT32,
               "intervals since the previous row without a row of a known GPU: the agent was late, or no NVML worker "
               "answered", "agent", "1", "1"),
        LakeColumn("spool_rows", Type.INT64, "rows waiting in the spool", "SQLite", "1", "1"),
        LakeColumn("spool_bytes", Type.INT64, "size of the spool on disk", "SQLite", "1 byte"),
        LakeColumn("memory_rows", Type.INT32, "rows that a full disk holds back in memory", "agent", "1", "1"),
        LakeColumn("sees_all_processes", Type.BOOL, "whether the agent's PID namespace shows every process on the GPUs",
               "/proc/self/ns/pid"),
    ),
)  # fmt: skip

_QUEUE = (
    LakeColumn("eligible", Type.TIMESTAMP, "earliest time at which it could have started, after dependencies and holds",
           "scheduler", "1 s"),
    LakeColumn("time_limit_s", Type.INT64, "longest run time; null without a limit", "scheduler", "1 s"),
    LakeColumn("priority", Type.INT64, "rank in the queue: larger is sooner; comparable within one scheduler",
           "scheduler", "1", "1"),
    LakeColumn("project", Type.STRING, "project, where that differs from the account", "scheduler"),
    LakeColumn("host_count", Type.INT32, "hosts requested or allocated", "scheduler", "1", "1"),
    LakeColumn("gpu_model", Type.STRING, "requested kind of GPU, in the scheduler's words; null: any", "scheduler"),
    LakeColumn("reason", Type.STRING,
           "latest reason to wait or to end, in the scheduler's words; with the limit, where the job exceeds one",
           "scheduler"),
    LakeColumn("gpu_shares", Type.STRING, "shares of GPUs, in the scheduler's words, such as shard=2; null: whole GPUs",
           "scheduler"),
)  # fmt: skip
"""Columns on the queue that allocations and requests share."""

_ACCOUNTED = (
    LakeColumn("accounted_ratio", Type.DOUBLE,
           "share of its GPU time with GPU figures of the scheduler's accounting; null: none", "scheduler"),
    LakeColumn("accounted_util_pct", Type.DOUBLE,
           "GPU utilization in this time, mean per GPU of each task's last reading", "scheduler"),
    LakeColumn("accounted_peak_pct", Type.DOUBLE, "the same of the highest readings: utilization was at most this",
           "scheduler"),
    LakeColumn("accounted_mem_bytes", Type.DOUBLE, "GPU memory in this time, mean per GPU of the last readings",
           "scheduler"),
)  # fmt: skip
"""Columns of an allocation that the scheduler's accounting reports: evidence beside the ledger, and no part of it."""

ALLOCATION = LakeTable(
    "allocation",
    "one GPU that was allocated to a user for a time",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "start of the allocation", "scheduler", "1 s", key=True),
        LakeColumn("gpu", Type.STRING, "UUID of the GPU; null where the scheduler names only a count",
               "scheduler", key=True),
        LakeColumn("end", Type.TIMESTAMP, "end of the allocation; null while it runs", "scheduler", "1 s"),
        LakeColumn("allocation_id", Type.STRING, "the scheduler's own id: job, pod or reservation",
               "scheduler", key=True),
        LakeColumn("scheduler", Type.STRING, "slurm, kubernetes, csv or simulated", "writer"),
        LakeColumn("user", Type.STRING, "user who submitted it", "scheduler"),
        LakeColumn("account", Type.STRING, "account or namespace that it is charged to", "scheduler"),
        LakeColumn("name", Type.STRING, "name of the allocation, or of its owner, such as Deployment/web", "scheduler"),
        LakeColumn("gpu_count", Type.INT32, "GPUs in the whole allocation", "scheduler", "1", "1"),
        LakeColumn("host_gpu_count", Type.INT32, "GPUs of the allocation on this host, where `gpu` is null",
               "scheduler", "1", "1"),
        LakeColumn("gpu_share_ratio", Type.DOUBLE,
               "part of each of its GPUs that it may use, where others share them; null: all of it",
               "scheduler", unit="1"),
        LakeColumn("partition", Type.STRING, "partition, queue or node pool", "scheduler"),
        LakeColumn("qos", Type.STRING, "quality of service or priority class", "scheduler"),
        LakeColumn("state", Type.STRING, "state in the scheduler's words", "scheduler"),
        LakeColumn("submitted", Type.TIMESTAMP, "time of submission", "scheduler", "1 s"),
        LakeColumn("planned_end", Type.TIMESTAMP, "latest end, by its time limit", "scheduler", "1 s"),
        *_QUEUE,
        *_ACCOUNTED,
    ),
)  # fmt: skip

REQUEST = LakeTable(
    "request",
    "one job that waits for GPUs or ended without any, as its source last reported it; rows are only added",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "time of submission", "scheduler", "1 s", key=True),
        LakeColumn("as_of", Type.TIMESTAMP, "time of the source's report", "scheduler", "1 s", key=True),
        LakeColumn("allocation_id", Type.STRING, "the scheduler's id, the same as that of its later allocations",
               "scheduler", key=True),
        LakeColumn("scheduler", Type.STRING, "slurm, kubernetes, csv or simulated", "writer", key=True),
        LakeColumn("user", Type.STRING, "user who submitted it", "scheduler"),
        LakeColumn("account", Type.STRING, "account or namespace that would be charged", "scheduler"),
        LakeColumn("name", Type.STRING, "the job's own name", "scheduler"),
        LakeColumn("gpu_count", Type.INT32, "GPUs requested at once, for each task", "scheduler", "1", "1"),
        LakeColumn("task_count", Type.INT32, "waiting tasks of a job array under this id; null: unknown, at least one",
               "scheduler", "1", "1"),
        LakeColumn("partition", Type.STRING, "partition or queue", "scheduler"),
        LakeColumn("qos", Type.STRING, "quality of service or priority class", "scheduler"),
        LakeColumn("state", Type.STRING, "state in the scheduler's words", "scheduler"),
        LakeColumn("withdrawn", Type.TIMESTAMP, "time at which it stopped waiting without a GPU; null while it waits",
               "scheduler", "1 s"),
        LakeColumn("granted", Type.TIMESTAMP,
               "time of an allocation under other ids, such as those of a Workload's pods; null: none, or under its "
               "own id", "scheduler", "1 s"),
        *_QUEUE,
    ),
)  # fmt: skip

WITHHELD = LakeTable(
    "withheld",
    "one host whose GPUs the scheduler may not allocate for a time, as its source last reported it; rows are only"
    " added",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "start", "scheduler", "1 s", key=True),
        LakeColumn("as_of", Type.TIMESTAMP, "time of the source's report", "scheduler", "1 s", key=True),
        LakeColumn("scheduler", Type.STRING, "slurm", "writer", key=True),
        LakeColumn("node", Type.STRING, "name of the host in the lake", "scheduler", key=True),
        LakeColumn("kind", Type.STRING, "drained (or down), or reservation", "scheduler", key=True),
        LakeColumn("name", Type.STRING, "name of the reservation; null: drained", "scheduler", key=True),
        LakeColumn("end", Type.TIMESTAMP, "planned end; null: unknown", "scheduler", "1 s"),
        LakeColumn("gpu_count", Type.INT32, "GPUs of the host; null: all of them", "scheduler", "1", "1"),
        LakeColumn("reason", Type.STRING, "reason, in the operators' words", "scheduler"),
    ),
)


def _actor(did: str) -> tuple[LakeColumn, ...]:
    return (
        LakeColumn("actor", Type.STRING, f"who {did}", "sign-in, login name, or --as"),
        LakeColumn(
            "actor_kind",
            Type.STRING,
            "person, token (a program), link (the user of a link in a nudge, by its address) or anonymous (pages "
            "without a sign-in)",
            "how the name is known",
        ),
        LakeColumn(
            "os_user",
            Type.STRING,
            "user of the operating system that the command ran as; null on the pages and for links",
            "user id of the command",
        ),
    )


ACTION = LakeTable(
    "action",
    "one action on a finding; rows are only added",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "when", "`fallow findings`", "1 ms", key=True),
        LakeColumn("action_id", Type.STRING, "distinguishes actions at the same moment", "`fallow findings`", key=True),
        LakeColumn("finding_id", Type.STRING,
               "the finding; for a nudge about a recommendation without a leading finding, the recommendation",
               "`fallow findings`", key=True),
        LakeColumn("kind", Type.STRING, "ack, snooze, reopen, notify or note", "`fallow findings`"),
        *_actor("did it"),
        LakeColumn("reason", Type.STRING, "reason, in the actor's words", "`fallow findings`"),
        LakeColumn("expires", Type.TIMESTAMP, "end of the snooze; null: until reopened", "`fallow findings`", "1 ms"),
        LakeColumn("channel", Type.STRING, "target of a notification, such as an address, or the link of an answer",
               "`fallow report nudge`"),
    ),
)  # fmt: skip

_ANNOTATOR = "`fallow annotations`"

ANNOTATION = LakeTable(
    "annotation",
    "one annotation of a moment (a maintenance, a change of quota), or its removal; rows are only added",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "time of writing", _ANNOTATOR, "1 ms", key=True),
        LakeColumn("annotation_id", Type.STRING, "id of the annotation; its removal has the same id", _ANNOTATOR,
                key=True),
        LakeColumn("kind", Type.STRING, "add or remove", _ANNOTATOR, key=True),
        LakeColumn("at", Type.TIMESTAMP, "the annotated moment; null for a removal", _ANNOTATOR, "1 ms"),
        LakeColumn("scope", Type.STRING, "subject: all, pool or team", _ANNOTATOR),
        LakeColumn("name", Type.STRING, "name of the pool or team; null for all", _ANNOTATOR),
        LakeColumn("text", Type.STRING, "what happened, in the actor's words", _ANNOTATOR),
        *_actor("wrote or removed it"),
    ),
)  # fmt: skip

_PLANNER = "`fallow plan scenarios --save`, or the page What if"

SCENARIO = LakeTable(
    "scenario",
    "one saved fleet or policy to compare, or its removal; rows are only added",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "time of saving or removal", _PLANNER, "1 ms", key=True),
        LakeColumn("name", Type.STRING, "name; a later scenario with the same name replaces it", _PLANNER, key=True),
        LakeColumn("kind", Type.STRING, "save or remove", _PLANNER, key=True),
        LakeColumn("policy", Type.STRING, "the policy as TOML (docs/planning.md); null for a removal", _PLANNER),
        *_actor("saved or removed it"),
    ),
)  # fmt: skip

_SENDER = "`fallow report send`"

DELIVERY = LakeTable(
    "delivery",
    "one step of sending one edition of the report, or one nudge, to one target; rows are only added",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "when", _SENDER, "1 ms", key=True),
        LakeColumn("delivery_id", Type.STRING,
               "id of purpose, week, edition, target and round: the same in every attempt", _SENDER, key=True),
        LakeColumn("try_id", Type.STRING, "distinguishes the attempts of two senders", _SENDER, key=True),
        LakeColumn("step", Type.STRING,
               "queued, yielded (to another sender), sending, sent, failed (it did not arrive) or unknown (it may have "
               "arrived)", _SENDER, key=True),
        LakeColumn("purpose", Type.STRING, "report or nudge", _SENDER),
        LakeColumn("week", Type.STRING, "ISO week such as 2026-W46; of a nudge the day on which it was sent", _SENDER),
        LakeColumn("edition", Type.STRING, "part of the fleet and language, such as `team=nlp/fr`", _SENDER),
        LakeColumn("round", Type.INT32, "0, and one more for each time that it was sent again on purpose",
               _SENDER, "1", "1"),
        LakeColumn("target", Type.STRING,
               "where to: a mail address, a folder, or a webhook's host with a digest in place of its secret",
               "--to, report.to or the contacts file"),
        *_actor("sent it"),
        LakeColumn("content_sha256", Type.STRING, "SHA-256 of what was sent, in hexadecimal digits", _SENDER),
        LakeColumn("content_bytes", Type.INT64, "size of what was sent, before it was coded for the way",
               _SENDER, "1 byte"),
        LakeColumn("tries", Type.INT32, "how many times this sender asked the receiver's server", _SENDER, "1", "1"),
        LakeColumn("reason", Type.STRING, "why it failed or is unknown; of what was sent the server's own word",
               "server's answer"),
        LakeColumn("finding_ids", Type.STRING_LIST, "the findings that it names", "analytics.workloads"),
    ),
)  # fmt: skip

_JUDGE = "`fallow evaluate --save`"

JUDGEMENT = LakeTable(
    "judgement",
    "how one rule's findings of one confidence fared by the labels of one evaluation; rows are only ever added",
    derived=False,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "when it was saved", _JUDGE, "1 ms", key=True),
        LakeColumn("evaluation_id", Type.STRING, "tells two evaluations of one moment apart", _JUDGE, key=True),
        LakeColumn("rule", Type.STRING, "the rule", _JUDGE, key=True),
        LakeColumn("confidence", Type.STRING, "high, medium or low, before any such row lowered it", _JUDGE, key=True),
        LakeColumn("since", Type.TIMESTAMP, "start of what was judged", _JUDGE, "1 ms"),
        LakeColumn("until", Type.TIMESTAMP, "its end: only findings of windows that end later are graded by it",
               _JUDGE, "1 ms"),
        LakeColumn("findings", Type.INT64, "findings of the rule and confidence", _JUDGE, "1", "1"),
        LakeColumn("judged", Type.INT64, "those of them that a label speaks of", _JUDGE, "1", "1"),
        LakeColumn("right", Type.INT64, "those of them that no label contradicts", _JUDGE, "1", "1"),
        LakeColumn("labels_sha256", Type.STRING, "SHA-256 of the file of labels, in hexadecimal digits", _JUDGE),
        *_actor("saved it"),
    ),
)  # fmt: skip
