"""GPUs that work half the time because CPUs, disks or the network cannot feed them faster.

Look-alikes that it leaves alone: an optimizer or simulator on the CPU, data generation, requests on a busy host,
backups and checkpoints, whole minutes without a kernel (`stalls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.language.sentences import Bytes, Number, Share, tr
from analytics.states import IN_USE
from analytics.workloads import waste
from analytics.workloads.commands import on_host
from analytics.workloads.finding_parts import label, words_for
from analytics.workloads.ledger_rows import first_ms, highest, joined, mean_of, newest_source, whole_hours, within_hours
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.processes import serving_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import DAY_MS, HOUR_MS

UTIL_FROM_PCT = 10.0
UTIL_BELOW_PCT = 70.0
STANDING_MAX = 0.5
CPU_FROM_PCT = 90.0
CPU_PRESSURE_FROM_PCT = 40.0
IO_PRESSURE_FROM_PCT = 20.0
PLATEAU = 0.9
PLATEAU_HOURS_MIN = 6
RATE_MIN_BYTES_PER_S = 100e6
CORES_MIN = 2
CORES_NEAR_PCT = 7.0
OFFLOAD_CPU_FROM_PCT = 300.0
OFFLOAD_HOST_MEM_MIN = 0.8
OFFLOAD_PCIE_FROM_BYTES_PER_S = 2e9
SHARE_MIN = 0.5
GAIN_MIN_PCT = 10.0
GPU_HOURS_MIN = 24


@dataclass(frozen=True)
class Resource:
    """A resource that may starve a GPU: the hourly column that shows its limit, and its evidence on the host.

    A `plateau` has a known shape and an unknown limit: it counts only if the GPU does better below it.
    """

    name: str
    words: str
    looks: tuple[str, ...]
    plateau: bool = False


RESOURCES = (
    Resource("process", "the CPUs that the process may use", ("top", "-b", "-n", "1")),
    Resource("cpu", "the host's CPUs", ("top", "-b", "-n", "1")),
    Resource("io", "the disks", ("iostat", "-x", "5", "3")),
    Resource("disk", "the disks", ("iostat", "-x", "5", "3"), plateau=True),
    Resource("net", "the network", ("sar", "-n", "DEV", "5", "3"), plateau=True),
)


_SHOWN = (
    "process_cpu_pct",
    "cpu_util_mean_pct",
    "cpu_pressure_mean_pct",
    "io_pressure_mean_pct",
    "disk_read_mean_bytes_per_s",
    "net_receive_mean_bytes_per_s",
    "pcie_mean_bytes_per_s",
)
"""Hourly columns whose means the finding has."""
_WAITS_FOR = {each.words: each.words for each in RESOURCES}


def input_starved_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host, user and job at medium utilization in hours in which the host was at a limit."""
    hours = _input_starved_hours(context)
    limiting = list(_limiting(hours))
    own = [hours.filter(pl.col("work") == work) for work, _, _ in limiting]
    waits = [
        rows.filter(pl.col("middling") & pl.col(resource.name))
        for rows, (_, resource, _) in zip(own, limiting, strict=True)
    ]
    found = zip(limiting, own, waits, within_hours(context, waits), strict=True)
    for (work, resource, gain_pct), rows, starved, segments in found:
        host, user = starved["host"][0], starved["user"][0]
        yield Candidate(
            segments,
            subject=work,
            source=newest_source(segments),
            numbers={
                "waits_for": resource.words,
                "gpu_util_mean_pct": mean_of(starved, "gpu_util_mean_pct"),
                "gpu_util_mean_otherwise_pct": mean_of(rows.filter(~pl.col(resource.name)), "gpu_util_mean_pct"),
                "zero_share": starved.select(pl.col("zero_ms").sum() / pl.col("observed_ms").sum()).item(),
                "share_of_middling_hours": starved.height / int(rows["middling"].sum()),
                **{name: mean_of(starved, name) for name in _SHOWN},
                "starved_gpu_hours": float(starved.height),
                "jobs": joined(starved, "job"),
            },
            failed=[_input_starved_doubts(context, starved, resource, gain_pct)],
            next_command=on_host(host, *resource.looks),
            user=user,
            since_ms=first_ms(starved),
            notes=[
                tr(
                    "CPU offload and data generation look the same: check what the CPU does before adding loader"
                    " workers"
                )
            ],
        )


INPUT_STARVED = Rule(
    name="input_starved",
    category="efficiency",
    sentence=of_gpus("that waited for input"),
    kinds=(waste.INEFFICIENT,),
    precedence=20,
    advice=tr(
        "Load the data with more workers or from a faster disk: the GPUs wait for input. If that is not possible, reply"
        " with the reason."
    ),
    per_host=True,
    history=HistoryNeed(HOUR_MS, gpu_hours=GPU_HOURS_MIN),
    thresholds={
        "utilization": (
            f"hourly mean from {UTIL_FROM_PCT:g} to {UTIL_BELOW_PCT:g} % (46 % of low-utilization jobs: data"
            " operations, ICSE'24)"
        ),
        "gaps": (
            f"at most {STANDING_MAX:.0%} of the hour in rows without any kernel (longer stops are phases, not waits)"
        ),
        "cpu": (
            f"host CPUs {CPU_FROM_PCT:g} % busy, or some task waiting for CPU {CPU_PRESSURE_FROM_PCT:g} % of the time"
            " (saturation)"
        ),
        "process": (
            f"the process's CPU use flat within {CORES_NEAR_PCT:g} points of {CORES_MIN} or more whole CPUs (a quota;"
            " one busy CPU proves nothing, for waiting for the GPU spins too)"
        ),
        "io": f"some task waiting for I/O {IO_PRESSURE_FROM_PCT:g} % of the time (saturation)",
        "plateau": (
            f"disk or network rate within {1 - PLATEAU:.0%} of the host's own 99th percentile for {PLATEAU_HOURS_MIN} h"
            f" and more, and the GPU {GAIN_MIN_PCT:g} points better below it"
        ),
        "share": f"{SHARE_MIN:.0%} of the hours at middling utilization (what coincides less often is no cause)",
        "hours": f"more than {GPU_HOURS_MIN} GPU-hours (Job Defense Shield mails from there on)",
    },
    labels=(
        label("waits_for", "waits for {value}", words_for(_WAITS_FOR)),
        label("gpu_util_mean_otherwise_pct", "mean utilization {value} % in its other hours"),
        label("zero_share", "no kernel for {value} of that time", Share),
        label("share_of_middling_hours", "{value} of the hours at medium utilization", Share),
        label("process_cpu_pct", "its processes use {value} % of a CPU"),
        label("cpu_util_mean_pct", "mean CPU use {value} %"),
        label("cpu_pressure_mean_pct", "tasks wait for a CPU {value} % of the time"),
        label("io_pressure_mean_pct", "tasks wait for I/O {value} % of the time"),
        label("disk_read_mean_bytes_per_s", "{value}/s read from disks", Bytes),
        label("net_receive_mean_bytes_per_s", "{value}/s received over the network", Bytes),
        label("pcie_mean_bytes_per_s", "{value}/s over PCIe", Bytes),
        label("starved_gpu_hours", "{value} GPU-hours in this condition"),
    ),
    find=input_starved_findings,
)


def _input_starved_hours(context: Context) -> pl.DataFrame:
    """Return whole hours of work without serving requests, with `work`, `middling` and a column per resource limit."""
    known = pl.col("gpu_util_mean_pct") >= UTIL_FROM_PCT
    hours = whole_hours(context).filter(known, ~pl.col("gpu").is_in(list(serving_gpus(context))))
    # whole minutes without a kernel are phases of the work; what waits for input works in between
    standing = pl.col("zero_ms") > STANDING_MAX * pl.col("observed_ms")
    middling = (pl.col("gpu_util_mean_pct") < UTIL_BELOW_PCT) & ~standing
    named = hours.with_columns(middling=middling, work=pl.format("{}/{}", "host", pl.coalesce("job", "user", "gpu")))
    # most work never comes near: only what has the hours is looked at further
    enough = named.filter((middling.sum() > GPU_HOURS_MIN).over("work"))
    limits = enough.join(_host_limits(context), on=("host", "time"), how="left").join(
        _process_limits(context),
        left_on=("host", "gpu", pl.col("time") // DAY_MS),
        right_on=("host", "gpu", "day"),
        how="left",
    )
    pcie = pl.col("pcie_mean_bytes_per_s") >= OFFLOAD_PCIE_FROM_BYTES_PER_S
    offload = pl.col("offload").fill_null(value=False) & pcie.fill_null(value=True)
    return limits.filter(~offload).with_columns(pl.col(each.name).fill_null(value=False) for each in RESOURCES)


def _host_limits(context: Context) -> pl.DataFrame:
    """Return per host and hour whether CPUs, I/O, disk rate and network rate were at a limit, and their numbers."""
    hosts = context.rollups.hosts()
    disk = (pl.col("disk_read_mean_bytes_per_s"), "disk")
    net = (pl.col("net_receive_mean_bytes_per_s"), "net")
    plateaus = [_plateau(rate).alias(name) for rate, name in (disk, net)]
    cpu = (pl.col("cpu_util_mean_pct") >= CPU_FROM_PCT) | (pl.col("cpu_pressure_mean_pct") >= CPU_PRESSURE_FROM_PCT)
    # checkpoints wait for disks too: what is mostly written is no input
    written = pl.col("disk_write_mean_bytes_per_s") > pl.max_horizontal(disk[0], net[0])
    io = (pl.col("io_pressure_mean_pct") >= IO_PRESSURE_FROM_PCT) & ~written.fill_null(value=False)
    return hosts.with_columns(*plateaus, cpu=cpu, io=io).drop("sample_count", "cpu_count")


def _plateau(rate: pl.Expr) -> pl.Expr:
    """Return an expression: hours near the host's 99th percentile, if there are many and the rate is substantial."""
    top = rate.quantile(0.99).over("host")
    near = (rate >= PLATEAU * top) & (top >= RATE_MIN_BYTES_PER_S)
    return near & (near.sum().over("host") >= PLATEAU_HOURS_MIN)


def _process_limits(context: Context) -> pl.DataFrame:
    """Return the CPU limits of processes, per host, GPU and day.

    The columns show whether they ran at a whole number of CPUs all day, and whether they look like offload.
    """
    mean, most = pl.col("cpu_util_mean_pct"), pl.col("cpu_util_max_pct")
    cores = (mean / 100).round()
    at_limit = (
        (cores >= CORES_MIN) & ((mean - 100 * cores).abs() <= CORES_NEAR_PCT) & (most <= 100 * cores + CORES_NEAR_PCT)
    )
    # optimizer states that were moved to the host: as much memory there as on the card, and the CPU computes on them
    offload = (mean >= OFFLOAD_CPU_FROM_PCT) & (
        pl.col("host_mem_max_bytes") >= OFFLOAD_HOST_MEM_MIN * pl.col("mem_used_max_bytes")
    )
    processes = context.rollups.processes(context.since_ms).filter(pl.col("end") > context.since_ms)
    return processes.group_by("host", "gpu", day=pl.col("time") // DAY_MS).agg(
        process=at_limit.any(), offload=offload.any(), process_cpu_pct=mean.max()
    )


def _limiting(hours: pl.DataFrame) -> Iterator[tuple[str, Resource, float | None]]:
    """Return work with the resource that explains most of its hours at medium utilization.

    The gain without that limit is None if no hour is without the limit.
    """
    util = pl.col("gpu_util_mean_pct").cast(pl.Float64)
    sums = hours.group_by("work", maintain_order=True).agg(
        pl.col("middling").sum(),
        *((pl.col("middling") & pl.col(each.name)).sum().alias(each.name) for each in RESOURCES),
        *(
            (util.filter(~pl.col(each.name)).mean() - util.filter(pl.col(each.name)).mean()).alias(
                f"{each.name}_gain_pct"
            )
            for each in RESOURCES
        ),
    )
    for row in sums.iter_rows(named=True):
        found = [each for each in RESOURCES if _explains(each, row)]
        if found:
            most = max(found, key=lambda each: row[each.name])
            yield row["work"], most, row[f"{most.name}_gain_pct"]


def _explains(resource: Resource, row: Mapping[str, Any]) -> bool:
    count, gain_pct = row[resource.name], row[f"{resource.name}_gain_pct"]
    if count <= GPU_HOURS_MIN or count < SHARE_MIN * row["middling"]:
        return False
    return not resource.plateau if gain_pct is None else bool(gain_pct >= GAIN_MIN_PCT)


def _input_starved_doubts(
    context: Context, starved: pl.DataFrame, resource: Resource, gain_pct: float | None
) -> list[str]:
    failed: list[str] = []
    if gain_pct is None:
        failed.append(
            tr(
                "{resource}: at the limit in every hour, so no other hour can be compared",
                resource=tr(_WAITS_FOR[resource.words]),
            )
        )
    host = starved["host"][0]
    there = context.inside.segments.filter(pl.col("host") == host)
    others = there.select(pl.coalesce("job", "user", "gpu").filter(pl.col("state").is_in(IN_USE)).n_unique())
    if others.item() > 1:
        failed.append(tr("other workloads run on the same host and may cause the load"))
    cpu_pct = highest(starved, "process_cpu_pct")
    if resource.name in ("process", "cpu") and cpu_pct is not None and cpu_pct >= OFFLOAD_CPU_FROM_PCT:
        failed.append(
            tr(
                "the process on the GPU uses {cpu_pct} % CPU: it may generate its data instead of loading it",
                cpu_pct=Number(cpu_pct),
            )
        )
    return failed
