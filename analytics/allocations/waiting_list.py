"""`fallow allocations list`: the jobs without GPUs, one line for those of an array that wait alike."""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from analytics.allocations.spans import FOREVER_MS
from fallow.clock import SECOND_MS, Window


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
