"""`fallow allocations list`: one line per allocation, over all its hosts and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import polars as pl

from analytics.allocations.spans import FOREVER_MS, known_allocations
from analytics.language.plain_text import PAGE_COLUMNS, count, fitted_lines, folded, moment, plain
from fallow.clock import HOUR_MS, Window, format_ms

COLUMNS = (
    "claim_id", "scheduler", "standing", "state", "user", "account", "project", "name", "partition", "qos", "priority", "submitted",
    "eligible", "start", "end", "planned_end", "time_limit_s", "hosts", "host_count", "gpu_model", "gpus", "gpu_hours", "unplaced_gpus",
    "tasks", "reason", "withdrawn", "as_of",
)  # fmt: skip
"""Fields of the CSV form in their order; the last four are of requests alone (`waiting_list`)."""

_SHRINKING = (("allocation", 10), ("user", 8), ("hosts", 9))
"""Columns that shrink on a narrow terminal, in this order, and their least width."""

_OF_RUNS = (
    "state", "user", "account", "project", "name", "partition", "qos", "priority", "submitted", "eligible", "planned_end", "time_limit_s",
    "host_count", "gpu_model", "gpu_count",
)  # fmt: skip
"""What every row of a run says alike."""
_TIMES = ("submitted", "eligible", "start", "end", "planned_end")


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


def values(allocation: ListedAllocation) -> list[Any]:
    """The fields in the order of COLUMNS, times as RFC 3339, hosts joined by `+`, unknown ones empty."""
    known = vars(allocation)
    return [_written(name, known.get(name)) for name in COLUMNS]


def as_json(table: Sequence[ListedAllocation]) -> dict[str, Any]:
    return {
        "claims": [
            {
                name: format_ms(value) if name in _TIMES and value is not None else value
                for name, value in vars(allocation).items()
            }
            for allocation in table
        ]
    }


def as_text(table: Sequence[ListedAllocation], window: Window, measured_ms: int, width: int = PAGE_COLUMNS) -> str:
    hours = sum(allocation.gpu_hours or 0.0 for allocation in table)
    unknown = sum(allocation.gpu_hours is None for allocation in table)
    running = sum(allocation.end is None for allocation in table)
    lines = [
        f"{count(len(table), 'allocation')}, {hours:,.1f} GPU-hours"
        + (f" and {unknown} of unknown size" if unknown else "")
    ]
    to_come = sum(_is_to_come(allocation, measured_ms) for allocation in table)
    until_ms = measured_ms if window.until_ms is None else min(window.until_ms, measured_ms)
    if running:
        verb = "runs" if running == 1 else "run"
        lines.append(f"{running:,} of them {verb} on: counted up to {moment(until_ms)} (+)")
    if to_come:
        verb = "ends" if to_come == 1 else "end"
        lines.append(f"{to_come:,} of them {verb} later than the newest sample: counted up to {moment(until_ms)} (+)")
    return "\n".join([folded("\n".join(lines), width), "", *_table(table, measured_ms, width)])


def _is_to_come(allocation: ListedAllocation, measured_ms: int) -> bool:
    return allocation.end is not None and allocation.end > measured_ms


def _table(table: Sequence[ListedAllocation], measured_ms: int, width: int) -> list[str]:
    """One line per allocation; a narrow terminal drops state and year and shortens names."""
    narrow = width < PAGE_COLUMNS
    years = {_minute(ms)[:4] for allocation in table for ms in (allocation.start, allocation.end) if ms is not None}
    part = slice(None) if not narrow else slice(5, None) if len(years) == 1 else slice(10)
    states = not narrow and any(allocation.state for allocation in table)
    names = [
        "start (UTC)",
        "end (UTC)",
        "GPUs",
        "GPU-hours ",
        *(["state"] if states else []),
        "user",
        "allocation",
        "hosts",
    ]
    cells = [names, *(_cells(allocation, part, measured_ms, states=states) for allocation in table)]
    shrinking = _SHRINKING if narrow else (("hosts", 12),)
    lines = fitted_lines(cells, width, shrinking, right=("GPUs", "GPU-hours "))
    return [f"  times of {min(years)}", *lines] if narrow and len(years) == 1 else lines


def _cells(allocation: ListedAllocation, part: slice, measured_ms: int, *, states: bool) -> list[str]:
    end = "runs" if allocation.end is None else _minute(allocation.end)[part]
    size = "?" if allocation.gpus is None else str(allocation.gpus)
    spent = "?" if allocation.gpu_hours is None else f"{allocation.gpu_hours:,.1f}"
    who = plain(allocation.user or allocation.account or "-", 12)
    state = [plain(allocation.state or "-", 10)] if states else []
    mark = "+" if allocation.end is None or _is_to_come(allocation, measured_ms) else " "
    return [
        _minute(allocation.start)[part],
        end,
        size,
        spent + mark,
        *state,
        who,
        plain(allocation.claim_id, 20),
        "+".join(allocation.hosts),
    ]


def _minute(moment_ms: int) -> str:
    return moment(moment_ms).removesuffix(" UTC")


def _written(name: str, value: Any) -> Any:
    if value is None:
        return ""
    if name in _TIMES:
        return format_ms(value)
    return "+".join(value) if name == "hosts" else value
