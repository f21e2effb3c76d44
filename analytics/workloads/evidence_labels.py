"""How each number of the evidence is called; `{value}` is the number, already with its digits.

Shares and bytes bring their unit, others have it here.
"""

from __future__ import annotations

WORDS = {
    "holder_source": "holder known by {value}",
    "longest_h": "longest {value} h",
    "mem_need_bytes": "memory needed {value}",
    "mem_together_bytes": "memory needed together {value}",
    "card_memory_bytes": "the card has {value}",
    "reserved_share_of_card": "{value} of the card's memory reserved",
    "kv_cache_used_max_ratio": "at most {value} of the KV cache used",
    "weights_bytes": "weights {value}",
    "power_mean_w": "mean power {value} W",
    "power_limit_w": "power limit {value} W",
    "gpu_util_mean_pct": "mean utilization {value} %",
    "gpu_util_max_pct": "highest utilization {value} %",
    "gpu_util_p95_pct": "utilization {value} % or less for 95 % of the time",
    "gpu_util_p98_pct": "utilization {value} % or less for 98 % of the time",
    "gpu_util_together_p95_pct": "together at most {value} % for 95 % of the hours",
    "gpu_util_together_bursts_p95_pct": "together at most {value} % for 95 % of samples",
    "aligned_hours": "seen side by side for {value} h",
    "sm_active_p95_pct": "SM activity {value} % or less for 95 % of the time",
    "sm_active_p98_pct": "SM activity {value} % or less for 98 % of the time",
    "sm_active_mean_pct": "mean SM activity {value} %",
    "dram_active_p95_pct": "memory bandwidth {value} % or less for 95 % of the time",
    "dram_active_p98_pct": "memory bandwidth {value} % or less for 98 % of the time",
    "dram_active_mean_pct": "mean memory bandwidth {value} %",
    "coverage": "observed {value}",
    "observed_gpu_hours": "{value} GPU-hours observed",
    "reserved_gpu_hours": "{value} GPU-hours reserved",
    "used_gpu_hours": "{value} GPU-hours used",
    "inefficient_gpu_hours": "{value} such GPU-hours",
    "share_of_busy_hours": "{value} of the busy hours",
    "share_of_held_hours": "{value} of all GPU-hours that are held",
    "recommended_card": "{value} would do",
    "recommended_memory_bytes": "it has {value}",
    "history_days": "{value} days of history",
    "model": "model {value}",
    "commands": "commands {value}",
    "jobs": "jobs {value}",
    "accounts": "accounts {value}",
    "pids": "pids {value}",
    "models": "models {value}",
    "endpoints": "endpoints {value}",
    "pools": "pool {value}",
    # blind_spot
    "silent_h": "silent for {value} h",
    "blind_gpu_hours": "{value} such GPU-hours",
    "share_of_the_host": "{value} of the host's time",
    "gpu_hours_of_the_host": "{value} GPU-hours of the host in all",
    # partial_use
    "gpus_of_the_job": "{value} GPUs in the job",
    "gpus_of_the_host": "{value} GPUs in the host",
    "gpus_used": "{value} of them used",
    "gpus_never_used": "{value} never used",
    "gpus_claimed": "{value} GPUs claimed on the host",
    "gpus_seen_of_the_claim": "seen on {value} of them",
    "gpus_never_seen_of_the_claim": "never on {value}",
    "used_gpu_util_mean_pct": "mean utilization of those that were used {value} %",
    "unused_gpu_util_mean_pct": "of the others {value} % at most",
    # hoarding
    "quota_gpus": "a quota of {value} GPUs",
    "quota_unused_gpus": "{value} of the quota not taken",
    "allocated_at_once_q95_gpus": "at most {value} GPUs taken at once for 95 % of the hours",
    "used_at_once_q95_gpus": "at most {value} GPUs active at once for 95 % of the hours",
    "allocated_gpu_hours": "{value} GPU-hours taken",
    # imbalance
    "busiest_gpu_sm_active_mean_pct": "mean SM activity {value} % on the busiest GPU",
    "idlest_gpu_sm_active_mean_pct": "{value} % on the idlest",
    "busiest_gpu_util_mean_pct": "mean utilization {value} % on the busiest GPU",
    "idlest_gpu_util_mean_pct": "{value} % on the idlest",
    "spread": "a spread of {value}",
    "slower_gpu_hours": "{value} GPU-hours on its slower GPUs",
    "waiting_gpu_hours": "all of its GPUs together {value} GPU-hours behind the busiest",
    # input_starved
    "waits_for": "waits for {value}",
    "gpu_util_mean_otherwise_pct": "mean utilization {value} % in its other hours",
    "zero_share": "no kernel for {value} of that time",
    "share_of_middling_hours": "{value} of the hours at middling utilization",
    "process_cpu_pct": "its processes use {value} % of a CPU",
    "cpu_util_mean_pct": "mean CPU use {value} %",
    "cpu_pressure_mean_pct": "some task waits for a CPU for {value} % of the time",
    "io_pressure_mean_pct": "some task waits for I/O for {value} % of the time",
    "disk_read_mean_bytes_per_s": "{value}/s read from disks",
    "net_receive_mean_bytes_per_s": "{value}/s received over the network",
    "pcie_mean_bytes_per_s": "{value}/s over PCIe",
    "starved_gpu_hours": "{value} such GPU-hours",
    # loaded_no_traffic and zombie_holder
    "quiet_h": "no request for {value} h",
    "answered_share": "its metrics were there for {value} of that time",
    "idle_h": "idle for {value} h",
    "why": "{value}",
    "kind": "{value}",
    # slow_uptake
    "gpus_slow": "{value} of them slow to be used",
    "gpus_without_any_use": "{value} never used",
    "first_use_after_h": "first used after up to {value} h",
    "days_since_added": "added {value} days ago",
    "active_share_since": "active for {value} of the time since",
    "active_share_of_the_fleet": "the rest of the fleet for {value}",
    # stalls
    "stall_mean_s": "mean length {value} s",
    "period_mean_min": "one every {value} min",
    "stalled_share": "{value} of the job's time",
    "stalled_gpu_hours": "{value} GPU-hours at a standstill",
    "job_gpu_hours": "{value} GPU-hours of the job in all",
    # throttled
    "cause": "slowed down by {value}",
    "throttled_share_of_active_time": "for {value} of the active time",
    "throttled_gpu_hours": "{value} GPU-hours slowed down",
    "active_gpu_hours": "{value} GPU-hours active",
    "temperature_max_c": "temperature up to {value} °C",
    "sm_clock_mean_mhz": "mean SM clock {value} MHz",
    "sm_clock_fastest_mhz": "highest of the model {value} MHz",
    # wind_down
    "days_without_activity": "{value} days without activity",
    "active_gpu_hours_a_day_lately": "{value} active GPU-hours a day lately",
    "active_gpu_hours_a_day_before": "{value} a day before",
    "days_since_a_process_began": "no process begun for {value} days",
    "gpus_idle_now": "{value} of them idle now",
}

COUNTS = {
    "works": ("{number} job", "{number} jobs"),
    "sample_count": ("{number} sample", "{number} samples"),
    "stall_count": ("{number} stall", "{number} stalls"),
    "process_count": ("{number} process", "{number} processes"),
    "stretch_count": ("in {number} stretch", "in {number} stretches"),
    "hosts": ("on {number} host", "on {number} hosts"),
    "gpus_added": ("{number} GPU added", "{number} GPUs added"),
    "gpus_still_theirs": ("{number} GPU still theirs", "{number} GPUs still theirs"),
    "past_gap_count": ("{number} past pause", "{number} past pauses"),
    "ramp_after_days": (
        "half of the fleet's mean after up to {number} day",
        "half of the fleet's mean after up to {number} days",
    ),
}
"""What is counted, in the singular and in the plural."""

WHOLE = ("quota_gpus", "quota_unused_gpus", "allocated_at_once_q95_gpus", "used_at_once_q95_gpus")
"""Numbers of GPUs; parts of one only where a split card leaves them."""

TOLD = {
    # holder_source
    "process": "process",
    "claim": "claim",
    "memory": "memory",
    # why
    "job ended": "their job has ended",
    "parent gone": "their parent process is gone",
    "notebook idle": "the notebook is idle",
    # kind
    "silent": "the host fell silent",
    "unknown time": "nobody looked",
    "no utilization": "utilization was not measured",
    "holder not known": "the holder is not known",
    "use not watched": "nobody watched who was on it",
    "quota": "the quota is far above what the team takes",
    "allocation": "the team takes far more than it uses",
    # waits_for
    "the CPUs that the process may use": "the CPUs that the process may use",
    "the host's CPUs": "the host's CPUs",
    "the disks": "the disks",
    "the network": "the network",
    # cause
    "heat": "heat",
    "power below the GPU's own limit": "power below the GPU's own limit",
    "the power cap": "the power cap",
    "another GPU of the boost group": "another GPU of the boost group",
}
"""Words that stand in the evidence as values, for machines."""

IN_WORDS = ("holder_source", "why", "kind", "waits_for", "cause")
"""The names whose values are such words; all other text is somebody's name."""
