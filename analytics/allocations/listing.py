"""`fallow allocations list`: a line per allocation, over all its hosts and GPUs, and jobs that have no GPUs yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import polars as pl
import pyarrow.compute as pc

from analytics.allocations.model import is_running
from analytics.allocations.spans import FOREVER_MS, SHARE, known_allocations
from analytics.names import CLUSTER
from fallow import parquet, schema
from fallow.clock import SECOND_MS, Window, to_ms
from fallow.lake import Lake, LakeFile


@dataclass(frozen=True)
class PlacedGpu:
    """A GPU or MIG instance of an allocation, and its index on its host; None where the inventory does not list it."""

    host: str
    index: int | None
    gpu: str


@dataclass(frozen=True)
class ListedAllocation:
    """One allocation; times in milliseconds. None is unknown; an `end` of None means that it runs."""

    allocation_id: str
    scheduler: str | None
    standing: str
    """Running or ended."""
    state: str | None
    """In the scheduler's words; None if the run has ended and its last known state is that of a running one."""
    user: str | None
    account: str | None
    project: str | None
    name: str | None
    partition: str | None
    qos: str | None
    priority: int | None
    submitted: int | None
    eligible: int | None
    start: int
    end: int | None
    planned_end: int | None
    time_limit_s: int | None
    hosts: tuple[str, ...]
    host_count: int | None
    gpu_model: str | None
    reason: str | None
    gpu_shares: str | None
    """Shares of GPUs, in the scheduler's words; None for whole GPUs."""
    gpus: int | None
    gpu_ms: float | None
    """GPU time inside the window; a GPU or MIG instance counts as one, and a share of it by its size."""
    gpu_share_ratio: float | None
    """Part of each GPU; None for whole GPUs."""
    unplaced_gpus: int | None
    """Number of GPUs of which only the host is known."""
    named: tuple[PlacedGpu, ...]
    """The GPUs with a name, by host and index."""
    accounted_ratio: float | None
    """Share of the GPU time with GPU figures of the scheduler's accounting; the figures are those of the whole run."""
    accounted_util_pct: float | None
    accounted_peak_pct: float | None
    accounted_mem_bytes: float | None


_OF_RUNS = (
    "gpu_count",
    *(
        each.name
        for each in fields(ListedAllocation)
        if each.name in schema.ALLOCATION.names and each.name not in ("allocation_id", "scheduler", "end")
    ),
)
"""Columns that have the same value in every row of a run."""


def allocations_in(
    allocations: pl.DataFrame, window: Window, measured_ms: int, indices: Mapping[str, int | None]
) -> list[ListedAllocation]:
    """Return the allocations that overlap the window, by start, counted up to the newest sample at the latest.

    `indices` has the index of each GPU on its host, by UUID.
    """
    since_ms = window.since_ms or 0
    until_ms = FOREVER_MS if window.until_ms is None else window.until_ms
    rows = known_allocations(allocations).filter((pl.col("start") < until_ms) & (pl.col("end") > since_ms))
    now_ms = min(until_ms, measured_ms)
    counted = pl.col("gpu").is_null()
    # pods of two clusters may have one name
    cluster = pl.when(pl.col("scheduler") == "kubernetes").then(CLUSTER).alias("cluster")
    run = ["scheduler", "allocation_id", "start", "cluster"]
    grouped = (
        rows.with_columns(cluster)
        .group_by(run)
        .agg(
            pl.col("end").max(),
            pl.col("host").unique().sort(),
            pl.col(_OF_RUNS).max(),
            on=pl.struct("host", "gpu").filter(~counted).unique(),
            named=pl.col("gpu").drop_nulls().n_unique(),
            counted=pl.col("host_gpu_count").filter(counted).sum(),
            uncounted=(counted & pl.col("host_gpu_count").is_null()).any(),
            any_counted=counted.any(),
        )
    )
    ended = (
        allocations.rename({"time": "start"})
        .with_columns(cluster)
        .group_by(run)
        .agg(ended=pl.col("end").is_not_null().any())
    )
    grouped = grouped.join(ended, on=run, how="left", nulls_equal=True)
    gpus = pl.when("uncounted").then("gpu_count").otherwise(pl.col("named") + pl.col("counted"))
    runs = ~pl.col("ended") & (pl.col("end") > measured_ms)
    lasted = pl.min_horizontal("end", pl.lit(now_ms)) - pl.max_horizontal("start", pl.lit(since_ms))
    unplaced = pl.when("uncounted").then(pl.col("gpu_count") - pl.col("named")).otherwise("counted")
    table = grouped.with_columns(
        gpus=gpus,
        gpu_ms=gpus * SHARE * lasted.clip(0),
        end=pl.when(~runs & (pl.col("end") < FOREVER_MS)).then("end"),
        unplaced_gpus=unplaced,
    ).with_columns(state=pl.when(pl.col("end").is_null() | ~is_running()).then("state"))
    ordered = table.sort("start", "allocation_id", "scheduler", "cluster", nulls_last=True)
    return [_listed_allocation(row, indices) for row in ordered.iter_rows(named=True)]


def _listed_allocation(row: dict[str, Any], indices: Mapping[str, int | None]) -> ListedAllocation:
    gpus = (PlacedGpu(each["host"], indices.get(each["gpu"]), each["gpu"]) for each in row["on"])
    known = {
        "hosts": tuple(row["host"]),
        "standing": "running" if row["end"] is None else "ended",
        "named": tuple(sorted(gpus, key=lambda each: (each.host, each.index is None, each.index or 0, each.gpu))),
    }
    values: dict[str, Any] = {each.name: row.get(each.name) for each in fields(ListedAllocation)} | known
    return ListedAllocation(**values)


@dataclass(frozen=True)
class AllocationSum:
    """GPU time of several allocations, and their use as the scheduler's accounting bounds it.

    `user` and `name` are None where the rows have none.
    """

    name: str | None
    user: str | None
    allocations: int
    gpu_ms: float
    """GPU time of allocations of known size."""
    accounted_ms: float
    """The part of it with GPU figures of accounting."""
    util_pct: float | None
    """Mean GPU utilization in that part, by the last readings of the tasks; None without any."""
    peak_pct: float | None
    """What it was at most there, by the highest readings; None where a reading is missing."""
    mem_bytes: float | None


GROUPED_BY: Mapping[str, Callable[[ListedAllocation], str | None]] = {
    "account": lambda each: each.account,
    "user": lambda each: each.user,
    "partition": lambda each: each.partition,
    "qos": lambda each: each.qos,
    "job": lambda each: each.allocation_id,
}
"""Groups of `sums_by`. Accounts are listed with their users, and jobs with theirs, as `sreport` does."""


def sums_by(found: Sequence[ListedAllocation], group: str) -> list[AllocationSum]:
    """Return the sums of the allocations by a group of GROUPED_BY, the most GPU time first."""
    with_user = group in ("account", "job")
    groups = defaultdict[tuple[str | None, str | None], list[ListedAllocation]](list)
    for each in found:
        groups[GROUPED_BY[group](each), each.user if with_user else None].append(each)
    sums = [_sum(*names, rows) for names, rows in groups.items()]
    return sorted(sums, key=lambda each: (-each.gpu_ms, each.name or "", each.user or ""))


def _sum(name: str | None, user: str | None, rows: Sequence[ListedAllocation]) -> AllocationSum:
    sized = [(each, each.gpu_ms) for each in rows if each.gpu_ms is not None]
    parts = [(each, spent_ms * each.accounted_ratio) for each, spent_ms in sized if each.accounted_ratio is not None]
    accounted_ms = sum(part_ms for _, part_ms in parts)

    def mean(figure: Callable[[ListedAllocation], float | None]) -> float | None:
        figures = [(figure(each), part_ms) for each, part_ms in parts]
        known = [value * part_ms for value, part_ms in figures if value is not None]
        return sum(known) / accounted_ms if accounted_ms and len(known) == len(figures) else None

    return AllocationSum(
        name,
        user,
        len(rows),
        sum(spent_ms for _, spent_ms in sized),
        accounted_ms,
        mean(lambda each: each.accounted_util_pct),
        mean(lambda each: each.accounted_peak_pct),
        mean(lambda each: each.accounted_mem_bytes),
    )


@dataclass(frozen=True)
class ListedRequest:
    """One job, or the tasks of an array; times in milliseconds. None is unknown; `withdrawn` is None while it waits."""

    allocation_id: str
    scheduler: str | None
    standing: str
    """Waiting or withdrawn."""
    state: str | None
    reason: str | None
    user: str | None
    account: str | None
    project: str | None
    name: str | None
    partition: str | None
    qos: str | None
    priority: int | None
    submitted: int
    eligible: int | None
    withdrawn: int | None
    as_of: int
    """The last time at which it was observed in this state."""
    time_limit_s: int | None
    gpus: int | None
    """GPUs of each task."""
    tasks: int
    host_count: int | None
    gpu_model: str | None

    @property
    def waited_ms(self) -> int:
        return (self.as_of if self.withdrawn is None else self.withdrawn) - self.submitted


def requests_in(jobs: pl.DataFrame, window: Window) -> list[ListedRequest]:
    """Return the jobs observed waiting inside the window, by submission; `jobs` has `plan.jobs`' JOB_SCHEMA."""
    since_ms = window.since_ms or 0
    until_ms = FOREVER_MS if window.until_ms is None else window.until_ms
    until = pl.coalesce("withdrawn", "as_of")
    rows = jobs.filter(pl.col("start").is_null(), pl.col("submitted") < until_ms, until >= since_ms)
    alike = rows.drop("hosts", "held").group_by(pl.all(), maintain_order=True).agg(tasks=pl.len())
    table = alike.with_columns(
        allocation_id="job",
        standing=pl.when(pl.col("withdrawn").is_null()).then(pl.lit("waiting")).otherwise(pl.lit("withdrawn")),
        time_limit_s=pl.col("time_limit_ms") // SECOND_MS,
    )
    names = [each.name for each in fields(ListedRequest)]
    return [ListedRequest(**row) for row in table.select(names).iter_rows(named=True)]


def newest_row_ms(lake: Lake) -> int | None:
    """Return the time of the newest sample in the last file of any host; None for a lake without samples.

    Running allocations count up to it. A damaged footer's statistics would end the process, so the times are read.
    """
    last: dict[str, LakeFile] = {}
    for file in lake.newest_files("gpu"):
        if file.host not in last or last[file.host].last_seq < file.last_seq:
            last[file.host] = file
    times = parquet.read(last.values(), schema.GPU, ["time"], lake.left_out.leave_out)["time"]
    newest = pc.max(times).as_py()
    return None if newest is None else to_ms(newest)
