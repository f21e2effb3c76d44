"""`fallow allocations list`: one line per allocation, over all its hosts and GPUs, and the jobs without GPUs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import polars as pl
import pyarrow.compute as pc

from analytics.allocations.spans import FOREVER_MS, known_allocations
from fallow import parquet, schema
from fallow.clock import HOUR_MS, SECOND_MS, Window, to_ms
from fallow.lake import Lake, LakeFile


@dataclass(frozen=True)
class ListedAllocation:
    """One allocation; times in milliseconds. None is unknown, and an `end` of None runs on."""

    claim_id: str
    scheduler: str | None
    standing: str
    """running or ended."""
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
    """GPU time inside the window; a GPU or MIG instance counts as one."""
    unplaced_gpus: int | None
    """GPUs of which only the host is known."""


_OF_RUNS = (
    "gpu_count",
    *(
        each.name
        for each in fields(ListedAllocation)
        if each.name in schema.CLAIM.names and each.name not in ("claim_id", "scheduler", "end")
    ),
)
"""What every row of a run says alike."""


def allocations_in(allocations: pl.DataFrame, window: Window, measured_ms: int) -> list[ListedAllocation]:
    """The allocations that overlap the window, by start, counted up to the newest sample at the latest."""
    since_ms = window.since_ms or 0
    until_ms = FOREVER_MS if window.until_ms is None else window.until_ms
    rows = known_allocations(allocations).filter((pl.col("start") < until_ms) & (pl.col("end") > since_ms))
    now_ms = min(until_ms, measured_ms)
    counted = pl.col("gpu").is_null()
    grouped = rows.group_by("scheduler", "claim_id", "start").agg(
        pl.col("end").max(),
        pl.col("host").unique().sort(),
        pl.col(_OF_RUNS).max(),
        named=pl.col("gpu").drop_nulls().n_unique(),
        counted=pl.col("host_gpu_count").filter(counted).sum(),
        uncounted=(counted & pl.col("host_gpu_count").is_null()).any(),
        any_counted=counted.any(),
    )
    run = ["scheduler", "claim_id", "start"]
    ended = allocations.rename({"time": "start"}).group_by(run).agg(ended=pl.col("end").is_not_null().any())
    grouped = grouped.join(ended, on=run, how="left", nulls_equal=True)
    gpus = pl.when("uncounted").then("gpu_count").otherwise(pl.col("named") + pl.col("counted"))
    runs = ~pl.col("ended") & (pl.col("end") > measured_ms)
    lasted = pl.min_horizontal("end", pl.lit(now_ms)) - pl.max_horizontal("start", pl.lit(since_ms))
    unplaced = pl.when("uncounted").then(pl.col("gpu_count") - pl.col("named")).otherwise("counted")
    table = grouped.with_columns(
        gpus=gpus,
        gpu_ms=gpus * lasted.clip(0),
        end=pl.when(~runs & (pl.col("end") < FOREVER_MS)).then("end"),
        unplaced_gpus=unplaced,
    )
    ordered = table.sort("start", "claim_id", "scheduler", nulls_last=True)
    return [_listed(row) for row in ordered.iter_rows(named=True)]


def _listed(row: dict[str, Any]) -> ListedAllocation:
    spent_ms = row["gpu_ms"]
    standing = "running" if row["end"] is None else "ended"
    known = {
        "hosts": tuple(row["host"]),
        "standing": standing,
        "gpu_hours": None if spent_ms is None else spent_ms / HOUR_MS,
    }
    told: dict[str, Any] = {each.name: row.get(each.name) for each in fields(ListedAllocation)} | known
    return ListedAllocation(**told)


@dataclass(frozen=True)
class ListedRequest:
    """One job, or the tasks of one array; times in milliseconds. None is unknown; a `withdrawn` of None waits."""

    claim_id: str
    scheduler: str | None
    standing: str
    """waiting or withdrawn."""
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
    """When it was last seen so."""
    time_limit_s: int | None
    gpus: int | None
    """Of each task."""
    tasks: int
    host_count: int | None
    gpu_model: str | None

    @property
    def waited_ms(self) -> int:
        """As far as it was seen."""
        return (self.as_of if self.withdrawn is None else self.withdrawn) - self.submitted


def requests_in(jobs: pl.DataFrame, window: Window) -> list[ListedRequest]:
    """Those that waited inside the window as far as they were seen, by submission; `jobs` has `plan.jobs`' JOB_SCHEMA."""
    since_ms = window.since_ms or 0
    until_ms = FOREVER_MS if window.until_ms is None else window.until_ms
    until = pl.coalesce("withdrawn", "as_of")
    rows = jobs.filter(pl.col("start").is_null(), pl.col("submitted") < until_ms, until >= since_ms)
    alike = rows.drop("hosts").group_by(pl.all(), maintain_order=True).agg(tasks=pl.len())
    table = alike.with_columns(
        claim_id="job",
        standing=pl.when(pl.col("withdrawn").is_null()).then(pl.lit("waiting")).otherwise(pl.lit("withdrawn")),
        time_limit_s=pl.col("time_limit_ms") // SECOND_MS,
    )
    names = [each.name for each in fields(ListedRequest)]
    return [ListedRequest(**row) for row in table.select(names).iter_rows(named=True)]


def newest_row_ms(lake: Lake) -> int | None:
    """The time of the newest sample in each host's last file, up to which running allocations are counted; None for a lake without samples.

    The statistics of a damaged footer would end the process: the times themselves are read.
    """
    files = lake.files("gpu")
    newest_day = max((file.date for file in files), default="")
    last: dict[str, LakeFile] = {}
    for file in files:
        if file.date == newest_day and (file.host not in last or last[file.host].last_seq < file.last_seq):
            last[file.host] = file
    times = parquet.read(last.values(), schema.GPU, ["time"], lake.left_out.leave_out)["time"]
    newest = pc.max(times).as_py()
    return None if newest is None else to_ms(newest)
