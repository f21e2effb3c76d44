"""`fallow allocations list`: the jobs without GPUs, one line for those of an array that wait alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import polars as pl

from analytics.allocations.spans import FOREVER_MS
from analytics.language.plain_text import PAGE_COLUMNS, count, fitted_lines, folded, moment, plain
from fallow.clock import HOUR_MS, SECOND_MS, Window, format_ms

_TIMES = ("submitted", "eligible", "withdrawn", "as_of")
_SHRINKING = (("request", 10), ("reason", 6), ("queue", 6), ("user", 6), ("state", 6))
"""Columns that shrink where the page is narrow, in this order, and their least width."""


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


def as_json(table: Sequence[ListedRequest]) -> dict[str, Any]:
    return {"requests": [_with_times(request) for request in table]}


def _with_times(request: ListedRequest) -> dict[str, Any]:
    return {
        name: format_ms(value) if name in _TIMES and value is not None else value
        for name, value in vars(request).items()
    }


def values(request: ListedRequest, columns: Sequence[str]) -> list[Any]:
    """The fields of those names, unknown ones and those that a request has not empty."""
    known = _with_times(request)
    return ["" if known.get(name) is None else known[name] for name in columns]


def as_text(table: Sequence[ListedRequest], width: int = PAGE_COLUMNS) -> str:
    """What waits and what was withdrawn, and when the newest of it was seen."""
    waiting = [request for request in table if request.withdrawn is None]
    jobs = sum(request.tasks for request in waiting)
    known = sum(request.gpus * request.tasks for request in waiting if request.gpus is not None)
    unknown = sum(request.tasks for request in waiting if request.gpus is None)
    verb = "waits" if jobs == 1 else "wait"
    head = f"{count(jobs, 'job')} {verb} for {count(known, 'GPU')}" + (
        f", and {unknown} of unknown size" if unknown else ""
    )
    if waiting:
        head += f", as of {moment(max(request.as_of for request in waiting))} at the latest"
    withdrawn = sum(request.tasks for request in table) - jobs
    if withdrawn:
        head += f"; {withdrawn:,} {'was' if withdrawn == 1 else 'were'} withdrawn without any GPU"
    names = ("submitted (UTC)", "hours ", "GPUs", "state", "reason", "user", "request", "queue")
    lines = fitted_lines([names, *map(_cells, table)], width, _SHRINKING, right=("hours ", "GPUs"))
    return "\n".join([folded(head, width), "", *lines])


def _cells(request: ListedRequest) -> tuple[str, ...]:
    size = "?" if request.gpus is None else str(request.gpus)
    return (
        moment(request.submitted).removesuffix(" UTC"),
        f"{request.waited_ms / HOUR_MS:,.1f}" + ("+" if request.withdrawn is None else " "),
        size if request.tasks == 1 else f"{request.tasks} x {size}",
        plain(request.state or request.standing, 10),
        plain(request.reason or "-", 16),
        plain(request.user or request.account or "-", 12),
        plain(request.claim_id, 24),
        plain(request.partition or "-", 12),
    )
