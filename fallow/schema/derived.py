"""Tables that are computed from the observed ones and can be rebuilt at will.

Each day of each of them is one file over all hosts, so that a week of a thousand GPUs is a few dozen files.
"""

from __future__ import annotations

from fallow.schema.samples import ALLOCATION, DEVICE, EVENT, REQUEST
from fallow.schema.types import LakeColumn, LakeTable, Type

_LEDGER = "analytics.ledger"
_TIME = LakeColumn("time", Type.TIMESTAMP, "start", _LEDGER, "1 ms", key=True)
_HOUR = LakeColumn("time", Type.TIMESTAMP, "start of the hour", _LEDGER, "1 h", key=True)
_END = LakeColumn("end", Type.TIMESTAMP, "end, exclusive", _LEDGER, "1 ms")
_HOST = LakeColumn("host", Type.STRING, "host that observed it", "the files' path", key=True)
_GPU = LakeColumn("gpu", Type.STRING, "UUID of the GPU or MIG instance", "gpu table", key=True)

_HOLDING = (
    LakeColumn("user", Type.STRING,
           "who holds the GPU, or has it allocated: the users of its processes (of root, its container or service), "
           "joined by `+`", "process and allocation tables"),
    LakeColumn("user_source", Type.STRING,
           "process, allocation, memory (memory in use implies a user), unwatched (neither processes nor memory were "
           "read: a user is possible) or allocation_unwatched (the same with an allocation)", _LEDGER),
    LakeColumn("account", Type.STRING, "account or namespace that the user's work is charged to, joined by `+`",
           "process and allocation tables"),
    LakeColumn("job", Type.STRING, "name of the work: slurm:ID, pod:NAMESPACE/POD, ray:ID or allocation:ID, "
           "joined by `+`; null for bare processes", "process and allocation tables"),
    LakeColumn("user_shares", Type.DOUBLE_LIST,
           "share of each of several users, in the order of `user`: its processes' time over all processes' time; null "
           "for one user", "process table", unit="1"),
)  # fmt: skip

_SAMPLED = (
    LakeColumn("sampled_ms", Type.INT64,
           "part of util_ms that is sampled: rows that cover less than half of their time; a row without a coverage "
           "covers a sixth of a second", "gpu table", "1 ms"),
    LakeColumn("perhaps_idle_ms", Type.INT64,
           "time that is not held but may have been part of an idle interval as long as `ledger.idle_after`: beside "
           "and between its rows at 0", "gpu table", "1 ms"),
    LakeColumn("perhaps_stalled_ms", Type.INT64,
           "time in use in which only one witness shows that kernels do no work, in runs as long as "
           "`ledger.stalled_after` or at the edge of a day", "gpu and process tables", "1 ms"),
    LakeColumn("no_process_ms", Type.INT64, "time in which kernels were reported and the process list was empty",
           "gpu table", "1 ms"),
    LakeColumn("idle_draw_max_w", Type.DOUBLE,
           "largest mean draw between two rows at 0, by the energy counter; null where it is unknown for some of them, "
           "and without sampled time", "gpu table"),
    LakeColumn("idle_power_max_w", Type.DOUBLE, "largest power reading of the rows at 0; null as in idle_draw_max_w",
           "gpu table"),
    LakeColumn("quiet_ms", Type.INT64,
           "part of sampled_ms between rows at 0 in which the energy counter rose as fast as the power readings at "
           "both ends, in runs as long as `ledger.idle_after`", "gpu table", "1 ms"),
    LakeColumn("quiet_draw_max_w", Type.DOUBLE, "largest mean draw between two rows of quiet_ms, by the energy counter",
           "gpu table"),
)  # fmt: skip

_EVIDENCE = (
    LakeColumn("gpu_util_mean_pct", Type.DOUBLE, "time-weighted mean utilization", "gpu table"),
    LakeColumn("gpu_util_max_pct", Type.DOUBLE, "largest utilization", "gpu table", "1 %"),
    LakeColumn("sm_active_mean_pct", Type.DOUBLE, "time-weighted mean SM activity", "gpu table"),
    LakeColumn("zero_ms", Type.INT64, "time at a measured utilization of 0", "gpu table", "1 ms"),
    LakeColumn("util_ms", Type.INT64, "time for which a utilization was measured", "gpu table", "1 ms"),
    LakeColumn("mem_used_max_bytes", Type.INT64, "largest memory in use", "gpu table", "1 byte"),
    LakeColumn("power_mean_w", Type.DOUBLE, "time-weighted mean power", "gpu table"),
    LakeColumn("energy_mj", Type.DOUBLE,
            "rise of the energy counter where there is one, else power times time; over energy_ms", "gpu table"),
    LakeColumn("energy_ms", Type.INT64, "time for which the energy is known", "gpu table", "1 ms"),
    LakeColumn("counter_ms", Type.INT64, "part of energy_ms that the energy counter covers", "gpu table", "1 ms"),
    LakeColumn("sample_count", Type.INT64, "rows of the gpu table behind the segment", "gpu table", "1", "1"),
    LakeColumn("coverage_ratio", Type.DOUBLE,
            "share of the time in which utilization was observed, by the coverage of the rows where they state one",
            "gpu table"),
    *_SAMPLED,
)  # fmt: skip

LEDGER = LakeTable(
    "ledger",
    "one segment of one GPU in exactly one state, cut at UTC midnight; the segments of a GPU neither overlap nor leave "
    "gaps",
    derived=True,
    columns=(
        _TIME,
        _HOST,
        _GPU,
        _END,
        LakeColumn("state", Type.STRING, "unknown, unavailable, free, reserved, held, stalled, low or active", _LEDGER),
        LakeColumn("segment_start", Type.TIMESTAMP, "start of the whole segment, before the cut at midnight",
               _LEDGER, "1 ms"),
        LakeColumn("gpu_share", Type.DOUBLE,
               "share of a GPU in the row: 1, or the slices of a MIG instance over all slices; for a split GPU itself "
               "the slices that no instance has", "device table", unit="1"),
        *_HOLDING,
        *_EVIDENCE,
    ),
)  # fmt: skip

GPU_STATE = LakeTable(
    "gpu_state",
    "one time of one GPU in one state and with one user, in the file of its month; stalled, low and active are one"
    " state here",
    derived=True,
    columns=(
        _TIME,
        _HOST,
        _GPU,
        _END,
        LakeColumn("state", Type.STRING, "the ledger's state at its start", _LEDGER),
        LakeColumn("user", Type.STRING, "as in the ledger; null without evidence of use", _LEDGER),
    ),
)

IDLE_INTERVAL = LakeTable(
    "idle_interval",
    "one idle interval of one GPU: unbroken measured zero utilization under any user, cut at UTC midnight",
    derived=True,
    columns=(
        _TIME,
        _HOST,
        _GPU,
        _END,
        LakeColumn("idle_interval_start", Type.TIMESTAMP,
                "start of the whole idle interval, before the cut at midnight", _LEDGER, "1 ms"),
    ),
)  # fmt: skip

LEDGER_PART = LakeTable(
    "ledger_part",
    "one segment of one GPU's day, before days are joined: the ledger's working copy, not for other readers",
    derived=True,
    columns=(
        _TIME,
        _HOST,
        _GPU,
        _END,
        LakeColumn(
            "label",
            Type.STRING,
            "unknown (between the first and the last row of the day and what is known of it), unseen (rows of a split"
            " GPU or an instance that say nothing, and without length where a GPU was released), unavailable, free,"
            " reserved, held, stalled, busy, zero or stalling (at an edge of the day and too short to be held or"
            " stalled by itself), or resumed (stalled if the day before ends so)",
            _LEDGER,
        ),
        LakeColumn("gpu_share", Type.DOUBLE, "as in the ledger", "device table", unit="1"),
        *_HOLDING,
        LakeColumn("util_sum", Type.DOUBLE, "utilization times milliseconds", "gpu table"),
        LakeColumn("util_ms", Type.INT64, "time for which a utilization was measured", "gpu table"),
        LakeColumn("gpu_util_max_pct", Type.DOUBLE, "largest utilization", "gpu table", "1 %"),
        LakeColumn("sm_sum", Type.DOUBLE, "SM activity times milliseconds", "gpu table"),
        LakeColumn("sm_ms", Type.INT64, "time for which SM activity was measured", "gpu table"),
        LakeColumn("zero_ms", Type.INT64, "time at a measured utilization of 0", "gpu table"),
        LakeColumn("mem_used_max_bytes", Type.INT64, "largest memory in use", "gpu table"),
        LakeColumn("power_sum", Type.DOUBLE, "power times milliseconds", "gpu table"),
        LakeColumn("power_ms", Type.INT64, "time for which power was measured", "gpu table"),
        LakeColumn("energy_mj", Type.DOUBLE, "as in the ledger", "gpu table"),
        LakeColumn("energy_ms", Type.INT64, "as in the ledger", "gpu table"),
        LakeColumn("counter_ms", Type.INT64, "as in the ledger", "gpu table"),
        LakeColumn("watched_sum", Type.DOUBLE, "the rows' own coverage times milliseconds", "gpu table"),
        LakeColumn("watched_ms", Type.INT64, "time of rows that state their coverage", "gpu table"),
        LakeColumn("sample_count", Type.INT64, "rows of the gpu table", "gpu table", unit="1"),
        *_SAMPLED,
        LakeColumn(
            "open_ms",
            Type.INT64,
            "for the GPU's last row of the day, the time after `end` that it may cover until the next row; "
            "null for every other segment, as are all columns that start with last_",
            "gpu table",
        ),
        LakeColumn("last_zero", Type.BOOL, "whether that row measured zero", "gpu table"),
        LakeColumn("last_util_pct", Type.DOUBLE, "that row's utilization", "gpu table"),
        LakeColumn("last_sm_pct", Type.DOUBLE, "that row's SM activity", "gpu table"),
        LakeColumn("last_power_w", Type.DOUBLE, "that row's power", "gpu table"),
        LakeColumn("last_energy_w", Type.DOUBLE, "that row's power, where no energy counter is known", "gpu table"),
        LakeColumn("last_counted", Type.BOOL, "whether the energy counter has that row's energy", "gpu table"),
        LakeColumn("last_watched_ratio", Type.DOUBLE, "that row's own coverage", "gpu table"),
    ),
)

IDLE_INTERVAL_PART = LakeTable(
    "idle_interval_part",
    "one idle interval within one GPU's day, before days are joined",
    derived=True,
    columns=(_TIME, _HOST, _GPU, _END),
)

_PEAKS = (
    "time at each whole percent, 0 to 100, rounded up, that the driver's samples {stay} within; rows without samples"
    " count at 100. A percentile of it is not below that of the samples, for any length of rows; null where no row has"
    " samples"
)
_HISTOGRAM = (
    "time at each whole percent, 0 to 100, rounded down (add to merge); a percentile of it is at most one point too low"
)

HOURLY = LakeTable(
    "hourly",
    "one GPU in one hour: values that segments do not keep; means are weighted by time",
    derived=True,
    columns=(
        _HOUR,
        _HOST,
        _GPU,
        LakeColumn("observed_ms", Type.INT32, "time for which a utilization was measured", "gpu table", "1 ms"),
        LakeColumn("zero_ms", Type.INT32, "time at a measured utilization of 0", "gpu table", "1 ms"),
        LakeColumn("gpu_util_mean_pct", Type.FLOAT, "mean utilization", "gpu table"),
        LakeColumn("gpu_util_ms", Type.INT_LIST, f"utilization: {_HISTOGRAM}", "gpu table", "1 ms"),
        LakeColumn("gpu_util_peak_ms", Type.INT_LIST, "utilization: " + _PEAKS.format(stay="stay"),
               "gpu table", "1 ms"),
        LakeColumn("sm_active_mean_pct", Type.FLOAT, "mean SM activity", "gpu table"),
        LakeColumn("sm_active_ms", Type.INT_LIST, f"SM activity: {_HISTOGRAM}; null where it was not measured",
               "gpu table", "1 ms"),
        LakeColumn("sm_active_peak_ms", Type.INT_LIST,
               "SM activity: " + _PEAKS.format(stay="would stay, if all kernels of a row took up equally many SMs,"),
               "gpu table", "1 ms"),
        LakeColumn("dram_active_mean_pct", Type.FLOAT, "mean share of peak memory bandwidth", "gpu table"),
        LakeColumn("tensor_active_mean_pct", Type.FLOAT, "mean tensor activity while kernels ran", "gpu table"),
        LakeColumn("tensor_used_ms", Type.INT32,
               "time with a kernel at 1 % tensor activity or more; null where that was not measured",
               "gpu table", "1 ms"),
        LakeColumn("tensor_unused_ms", Type.INT32, "time with a kernel at less tensor activity; null as tensor_used_ms",
               "gpu table", "1 ms"),
        LakeColumn("peak_share_low_pct", Type.FLOAT,
               "mean share of the card's peak while kernels ran, at least: of each row the largest measured of tensor, "
               "FP64, FP32 and FP16 activity and memory bandwidth; 0 where only SM activity was measured", "gpu table"),
        LakeColumn("peak_share_high_pct", Type.FLOAT,
               "the same, at most: SM activity, or utilization where that was not measured", "gpu table"),
        LakeColumn("peak_share_ms", Type.INT32, "time with a kernel for which one of them was measured",
               "gpu table", "1 ms"),
        LakeColumn("peak_share_by", Type.STRING,
               "what was the largest for most of peak_share_low_pct: tensor, fp64, fp32, fp16 or dram", "gpu table"),
        LakeColumn("pcie_mean_bytes_per_s", Type.DOUBLE, "mean PCIe traffic, both ways", "gpu table"),
        LakeColumn("nvlink_mean_bytes_per_s", Type.DOUBLE, "mean NVLink traffic, both ways", "gpu table"),
        LakeColumn("mem_used_mean_bytes", Type.DOUBLE, "mean memory in use", "gpu table"),
        LakeColumn("mem_used_std_bytes", Type.DOUBLE, "standard deviation of the memory in use over the hour's rows",
               "gpu table"),
        LakeColumn("mem_used_max_bytes", Type.INT64, "largest memory in use", "gpu table", "1 byte"),
        LakeColumn("power_mean_w", Type.FLOAT, "mean power", "gpu table"),
        LakeColumn("energy_mj", Type.DOUBLE, "as in the ledger, over energy_ms", "gpu table"),
        LakeColumn("energy_ms", Type.INT32, "time for which the energy is known", "gpu table", "1 ms"),
        LakeColumn("throttled_power_ms", Type.INT32,
               "time with clocks held down by power cap or power brake; null without a counter", "gpu table", "1 ms"),
        LakeColumn("throttled_thermal_ms", Type.INT32,
               "time with clocks held down by heat, in software or hardware; null without a counter",
               "gpu table", "1 ms"),
        LakeColumn("throttled_sync_ms", Type.INT32, "time with clocks held down by another GPU of the boost group",
               "gpu table", "1 ms"),
        LakeColumn("throttled_known_ms", Type.INT32, "time that the throttled_ counters cover", "gpu table", "1 ms"),
        LakeColumn("temperature_max_c", Type.INT16, "largest die temperature", "gpu table", "1 degC"),
        LakeColumn("sm_clock_mean_mhz", Type.FLOAT, "mean SM clock", "gpu table"),
    ),
)  # fmt: skip

PROCESS_DAY = LakeTable(
    "process_day",
    "one process on one GPU in one UTC day",
    derived=True,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "first list of the day that names it", "process table", "1 ms", key=True),
        _HOST,
        _GPU,
        LakeColumn("end", Type.TIMESTAMP, "end of the interval of the last list that names it",
               "process table", "1 ms"),
        LakeColumn("last_listed", Type.TIMESTAMP,
               "the GPU's last list of the day; later than the last list with the process if that has ended",
               "process table", "1 ms"),
        LakeColumn("pid", Type.INT32, "process id", "process table", key=True),
        LakeColumn("started", Type.TIMESTAMP, "start of the process", "process table", "10 ms"),
        LakeColumn("kind", Type.STRING, "compute, graphics or mps", "process table"),
        LakeColumn("user", Type.STRING,
               "login name; for root without a job the container, such as lxc/web, else the unit, such as vllm.service",
               "process table"),
        LakeColumn("command", Type.STRING, "command name", "process table"),
        LakeColumn("arguments", Type.STRING, "command line, where it was recorded", "process table"),
        LakeColumn("first_parent_pid", Type.INT32, "parent process at the first list of the day that names it",
               "process table"),
        LakeColumn("parent_pid", Type.INT32, "parent process at its last list (1: its own parent has ended)",
               "process table"),
        LakeColumn("account", Type.STRING, "Slurm account or namespace", "process table"),
        LakeColumn("job", Type.STRING, "as in the ledger", "process table"),
        LakeColumn("container_id", Type.STRING, "container that the process runs in", "process table"),
        LakeColumn("pod_labels", Type.STRING, "labels of the pod as a JSON object", "process table"),
        LakeColumn("mem_first_bytes", Type.INT64, "device memory at the first list of the day that names it",
               "process table", "1 byte"),
        LakeColumn("mem_used_max_bytes", Type.INT64, "largest device memory", "process table", "1 byte"),
        LakeColumn("cpu_util_mean_pct", Type.DOUBLE, "mean CPU use; 100 is one CPU", "process table"),
        LakeColumn("cpu_util_max_pct", Type.DOUBLE, "largest CPU use", "process table"),
        LakeColumn("host_mem_max_bytes", Type.INT64, "largest resident host memory", "process table", "1 byte"),
        LakeColumn("list_count", Type.INT32, "lists that name it", "process table", "1", "1"),
    ),
)  # fmt: skip

HOST_HOURLY = LakeTable(
    "host_hourly",
    "one host in one hour; means over its rows",
    derived=True,
    columns=(
        _HOUR,
        _HOST,
        LakeColumn("cpu_util_mean_pct", Type.DOUBLE, "mean CPU use of the host, 100 is every CPU", "host table"),
        LakeColumn("cpu_count", Type.INT32, "logical CPUs", "host table", unit="1"),
        LakeColumn("cpu_pressure_mean_pct", Type.DOUBLE, "mean share of time in which some task waited for CPU",
               "host table"),
        LakeColumn("io_pressure_mean_pct", Type.DOUBLE, "mean share of time in which some task waited for I/O",
               "host table"),
        LakeColumn("disk_read_mean_bytes_per_s", Type.DOUBLE, "mean read rate of all disks", "host table"),
        LakeColumn("disk_write_mean_bytes_per_s", Type.DOUBLE, "mean write rate of all disks", "host table"),
        LakeColumn("net_receive_mean_bytes_per_s", Type.DOUBLE, "mean receive rate of all network cards", "host table"),
        LakeColumn("net_transmit_mean_bytes_per_s", Type.DOUBLE, "mean transmit rate of all network cards",
               "host table"),
        LakeColumn("sample_count", Type.INT32, "rows of the host table", "host table", "1", "1"),
    ),
)  # fmt: skip

SERVING_HOURLY = LakeTable(
    "serving_hourly",
    "one model of one inference server on one GPU in one hour; means over the scrapes that answered",
    derived=True,
    columns=(
        _HOUR,
        _HOST,
        _GPU,
        LakeColumn("endpoint", Type.STRING, "address of the server's metrics", "serving table", key=True),
        LakeColumn("model", Type.STRING, "model as the server names it", "serving table", key=True),
        LakeColumn("engine", Type.STRING, "vllm, sglang, triton, tensorrt-llm, tgi, dynamo or ray serve",
                "serving table"),
        LakeColumn("kv_cache_used_max_ratio", Type.DOUBLE, "largest share of the KV cache in use", "serving table"),
        LakeColumn("running_requests_max", Type.DOUBLE, "most requests being served at once", "serving table",
                unit="1"),
        LakeColumn("waiting_requests_max", Type.DOUBLE, "longest queue", "serving table", unit="1"),
        LakeColumn("namespace", Type.STRING, "namespace of the server's pod", "serving table"),
        LakeColumn("pod", Type.STRING, "the server's pod", "serving table"),
        LakeColumn("requests", Type.DOUBLE, "requests finished, of the whole server", "serving table", unit="1"),
        LakeColumn("prompt_tokens", Type.DOUBLE, "prompt tokens, of the whole server", "serving table", unit="1"),
        LakeColumn("generated_tokens", Type.DOUBLE, "generated tokens, of the whole server", "serving table", unit="1"),
        LakeColumn("tokens_max_per_s", Type.DOUBLE, "most prompt and generated tokens per second between two scrapes",
                "serving table"),
        LakeColumn("time_to_first_token_max_s", Type.DOUBLE, "longest mean time to the first token", "serving table"),
        LakeColumn("answered_ms", Type.INT64, "time that the scrapes which answered describe", "serving table",
                unit="ms"),
        LakeColumn("scrape_count", Type.INT32, "scrapes that answered", "serving table", "1", "1"),
    ),
)  # fmt: skip

QUALITY = LakeTable(
    "quality",
    "one fault of one GPU's rows of one day, or of its host's files, with their number; no faulty value is used",
    derived=True,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "start of the day", _LEDGER, "1 day", key=True),
        _HOST,
        LakeColumn("gpu", Type.STRING, "UUID of the GPU; null for the host", "gpu table", key=True),
        LakeColumn(
            "kind",
            Type.STRING,
            "util_out_of_range, negative_value, too_large, not_a_number, no_interval, wrong_day, duplicate_rows, "
            "overlapping_rows, counter_fell, file_left_out (a file that cannot be used) or file_not_read (one that may "
            "be readable again); of values that contradict each other readings_repeat, util_without_context (neither "
            "shows what the GPU did), counter_stands_still, energy_against_power, power_against_energy, power_repeats, "
            "activity_repeats or memory_without_context (one value is not used)",
            _LEDGER,
            key=True,
        ),
        LakeColumn("count", Type.INT64, "rows or files", _LEDGER, "1", "1"),
        LakeColumn("example", Type.STRING, "the worst value; for a file its fault and its path in the lake", _LEDGER),
        LakeColumn("source", Type.STRING, "util_source of values that contradict each other; null for other faults",
               "gpu table"),
        LakeColumn("affected_ms", Type.INT64, "time of values that contradict each other; null for other faults",
               _LEDGER, "1 ms"),
    ),
)  # fmt: skip


GPU_LIFETIME = LakeTable(
    "gpu_lifetime",
    "the history of one GPU on one host up to the end of one day, and its work on that day",
    derived=True,
    columns=(
        LakeColumn("time", Type.TIMESTAMP, "start of the day", _LEDGER, "1 day", key=True),
        _HOST,
        _GPU,
        LakeColumn("first_seen", Type.TIMESTAMP, "start of its first row in the ledger", _LEDGER, "1 ms"),
        LakeColumn("last_seen", Type.TIMESTAMP, "end of its last row up to the end of the day", _LEDGER, "1 ms"),
        LakeColumn("first_use", Type.TIMESTAMP, "start of its first workload; null without one", _LEDGER, "1 ms"),
        LakeColumn("used_ms", Type.INT64, "time with a workload", _LEDGER, "1 ms"),
        LakeColumn("unused_ms", Type.INT64, "time in the states free and reserved", _LEDGER, "1 ms"),
        LakeColumn("util_ms", Type.INT64, "time for which a utilization was measured", _LEDGER, "1 ms"),
        LakeColumn("sample_count", Type.INT64, "rows of the gpu table", _LEDGER, "1", "1"),
        LakeColumn("gpu_util_max_pct", Type.FLOAT, "highest utilization", _LEDGER, "1 %"),
        LakeColumn("mem_used_max_bytes", Type.INT64, "most memory in use", _LEDGER),
        LakeColumn("unwatched", Type.BOOL, "true if neither processes nor memory were read for some time", _LEDGER),
        LakeColumn("day_known_ms", Type.INT64,
               "time of that day that is neither unknown nor unavailable, over all hosts of the GPU, in the row of the "
               "first host; 0 in the others", _LEDGER, "1 ms"),
        LakeColumn("day_active_ms", Type.INT64, "time of that day in the states low and active, in the same row",
               _LEDGER, "1 ms"),
    ),
)  # fmt: skip


def _of_all_hosts(table: LakeTable) -> LakeTable:
    """Return the table with a small table's rows in one file a day: a thousand hosts' files take seconds to open."""
    columns = (*table.columns, _HOST) if "host" not in table.names else table.columns
    return LakeTable(
        f"{table.name}_day", f"a row of the {table.name} table, of all hosts", derived=True, columns=columns
    )


DEVICE_DAY, ALLOCATION_DAY, REQUEST_DAY, EVENT_DAY = (
    _of_all_hosts(table) for table in (DEVICE, ALLOCATION, REQUEST, EVENT)
)
