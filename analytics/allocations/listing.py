"""`fallow allocations list`: one line per allocation, over all its hosts and GPUs, and the jobs that have no GPUs yet."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import polars as pl
import pyarrow.compute as pc

from analytics.allocations.spans import FOREVER_MS, SHARE, known_allocations
from fallow import parquet, schema
from fallow.clock import HOUR_MS, SECOND_MS, Window, to_ms
from fallow.lake import Lake, LakeFile


@dataclass(frozen=True)
class ListedAllocation:
    """One allocation; times in milliseconds. None is unknown; an `end` of None means that it runs."""

    allocation_id: str
    scheduler: str | None
    standing: str
    """Running or ended."""
    state: str | None
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
    gpus: int | None
    gpu_hours: float | None
    """GPU time inside the window; a GPU or MIG instance counts as one, and a share of it by its size."""
    gpu_share_ratio: float | None
    """Part of each GPU; None for whole GPUs."""
    unplaced_gpus: int | None
    """Number of GPUs of which only the host is known."""


_OF_RUNS = (
    "gpu_count",
    *(
        each.name
        for each in fields(ListedAllocation)
        if each.name in schema.ALLOCATION.names and each.name not in ("allocation_id", "scheduler", "end")
    ),
)
"""Columns that have the same value in every row of a run."""


def allocations_in(allocations: pl.DataFrame, window: Window, measured_ms: int) -> list[ListedAllocation]:
    """Return the allocations that overlap the window, by start, counted up to the newest sample at the latest."""
    since_ms = window.since_ms or 0
    until_ms = FOREVER_MS if window.until_ms is None else window.until_ms
    rows = known_allocations(allocations).filter((pl.col("start") < until_ms) & (pl.col("end") > since_ms))
    now_ms = min(until_ms, measured_ms)
    counted = pl.col("gpu").is_null()
    grouped = rows.group_by("scheduler", "allocation_id", "start").agg(
        pl.col("end").max(),
        pl.col("host").unique().sort(),
        pl.col(_OF_RUNS).max(),
        named=pl.col("gpu").drop_nulls().n_unique(),
        counted=pl.col("host_gpu_count").filter(counted).sum(),
        uncounted=(counted & pl.col("host_gpu_count").is_null()).any(),
        any_counted=counted.any(),
    )
    run = ["scheduler", "allocation_id", "start"]
    ended = allocations.rename({"time": "start"}).group_by(run).agg(ended=pl.col("end").is_not_null().any())
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
    )
    ordered = table.sort("start", "allocation_id", "scheduler", nulls_last=True)
    return [_listed_allocation(row) for row in ordered.iter_rows(named=True)]


def _listed_allocation(row: dict[str, Any]) -> ListedAllocation:
    spent_ms = row["gpu_ms"]
    standing = "running" if row["end"] is None else "ended"
    known = {
        "hosts": tuple(row["host"]),
        "standing": standing,
        "gpu_hours": None if spent_ms is None else spent_ms / HOUR_MS,
    }
    values: dict[str, Any] = {each.name: row.get(each.name) for each in fields(ListedAllocation)} | known
    return ListedAllocation(**values)


@dataclass(frozen=True)
class ListedRequest:
    """One job, or the tasks of one array; times in milliseconds. None is unknown; a `withdrawn` of None means that it waits."""

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
        """Return the observed queue wait."""
        return (self.as_of if self.withdrawn is None else self.withdrawn) - self.submitted


def requests_in(jobs: pl.DataFrame, window: Window) -> list[ListedRequest]:
    """Return the jobs that were observed waiting inside the window, by submission; `jobs` has `plan.jobs`' JOB_SCHEMA."""
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

    Running allocations are counted up to this time. The statistics of a damaged footer would end the process, so the times themselves are read.
    """
    last: dict[str, LakeFile] = {}
    for file in lake.newest_files("gpu"):
        if file.host not in last or last[file.host].last_seq < file.last_seq:
            last[file.host] = file
    times = parquet.read(last.values(), schema.GPU, ["time"], lake.left_out.leave_out)["time"]
    newest = pc.max(times).as_py()
    return None if newest is None else to_ms(newest)
