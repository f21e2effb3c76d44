"""What fallow cannot say of GPUs without a column, in plain words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Absence:
    """One thing that an exporter may not tell; it is there where one of `sources` is.

    `sources` are `table.column`, `given` for any word about the holder, or the name of an exporter.
    """

    name: str
    sources: tuple[str, ...]
    without: str
    beside: tuple[str, ...] = ()
    """Said only of GPUs that have one of these: what lacks them too has a graver absence."""


ABSENCES = (
    Absence("utilization", ("gpu.gpu_util_pct",), "nothing can be called busy or idle: all of the time is unknown"),
    Absence(
        "memory in use",
        ("gpu.mem_used_bytes",),
        "held and free cannot be told apart: a GPU at 0 counts as free, or as reserved where a pod or job has it",
    ),
    Absence(
        "who holds it",
        ("given",),
        "nobody to ask: no team, user, pod or job has a share of the bill, and no finding names one",
    ),
    Absence(
        "power",
        ("gpu.power_w", "gpu.energy_mj"),
        "no energy and no cost of it, and nothing confirms that a GPU stayed idle between two scrapes: idle time is a range",
    ),
    Absence(
        "energy counter",
        ("gpu.energy_mj",),
        "power readings alone confirm that a GPU stayed idle: work in step with the scrapes would not be seen",
        beside=("gpu.power_w",),
    ),
    Absence(
        "SM activity",
        ("gpu.sm_active_pct",),
        "how much of a busy GPU is used is unknown: work that keeps a few of its SMs busy looks like work that fills it",
        beside=("gpu.gpu_util_pct",),
    ),
    Absence(
        "size of the memory",
        ("device.mem_total_bytes",),
        "how full a GPU's memory is, and what would fit beside it, is unknown",
    ),
    Absence("model", ("device.model",), "prices and power by model cannot be applied, nor GPUs of a kind compared"),
    Absence(
        "reasons of throttling",
        ("gpu.throttle_reasons", "gpu.throttled_power_cap_ms", "gpu.throttled_hw_thermal_ms"),
        "whether heat or a power cap slows a GPU down is unknown",
    ),
)
"""Of each GPU, what it takes most seriously first."""

OF_SITES = (
    Absence(
        "hosts",
        ("host.cpu_util_pct",),
        "whether GPUs wait for their host's CPUs, memory, disks or network is unknown",
    ),
    Absence(
        "Kubernetes objects",
        ("kube-state-metrics",),
        "what owns a pod, how long it waited and what else is asked for is unknown; a Slurm site imports sacct instead",
    ),
)
"""Of the site as a whole."""
