"""`fallow allocations list`: one line per allocation, over all its hosts and GPUs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import polars as pl

from analytics.allocations.spans import FOREVER_MS, known_allocations
from fallow.clock import HOUR_MS, Window

_OF_RUNS = (
    "state",
    "user",
    "account",
    "project",
    "name",
    "partition",
    "qos",
    "priority",
    "submitted",
    "eligible",
    "planned_end",
    "time_limit_s",
    "host_count",
    "gpu_model",
    "gpu_count",
)
"""What every row of a run says alike."""


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
