"""Waits added up: by pool, size, team, partition or rank, and half by half of the window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.plan.wait_causes import CAUSES, SHORTAGE
from analytics.plan.waits import TIME_OF, Waits

GROUPS = ("pool", "size", "team", "partition", "rank")
"""What waits are added up by, as columns of their rows."""


@dataclass(frozen=True)
class WaitGroup:
    """Waits of some jobs; `name` is None where it is not known.

    `open_jobs` still waited at the end. The median and the nine of ten are of all jobs, those without a wait among them, None
    where there is none. `wait_ms` is job time, `gpu_ms` the same times the GPUs of each; `cause_ms` and `cause_gpu_ms` are parts of it.
    """

    name: str | None
    jobs: int
    open_jobs: int
    median_ms: float | None
    p90_ms: float | None
    wait_ms: int
    gpu_ms: int
    cause_ms: Mapping[str, int]
    cause_gpu_ms: Mapping[str, int]

    def share(self, cause: str) -> float | None:
        """Which part of the time has the cause; None where nobody waited."""
        return self.cause_ms[cause] / self.wait_ms if self.wait_ms else None

    @property
    def shortage(self) -> tuple[float | None, float | None]:
        """Least and most of the part that only more GPUs cure: what nobody saw may be shortage as well."""
        least, unknown = self.share(SHORTAGE), self.share("unknown")
        return least, None if least is None or unknown is None else least + unknown


def in_all(waits: Waits) -> WaitGroup:
    """All waits."""
    return _group(None, waits.rows)


def wait_groups(waits: Waits, by: str) -> list[WaitGroup]:
    """One for each value of a column of GROUPS, the longest waits first."""
    found = [_group(name, rows) for (name,), rows in waits.rows.partition_by(by, as_dict=True).items()]
    return sorted(found, key=lambda each: (-each.wait_ms, each.name or ""))


def halves(waits: Waits) -> tuple[WaitGroup, WaitGroup]:
    """What was waited in the first and in the second half of the window."""
    middle = (waits.since_ms + waits.until_ms) // 2
    return _group(None, _part(waits.rows, waits.since_ms, middle)), _group(
        None, _part(waits.rows, middle, waits.until_ms)
    )


def _part(rows: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """The part of each wait in [since, until): the last cause comes first in it, and the first one last."""
    stop, columns = pl.col("begin"), {}
    for cause in reversed(CAUSES):
        start, stop = stop, stop + pl.col(TIME_OF[cause])
        columns[TIME_OF[cause]] = stop.clip(since_ms, until_ms) - start.clip(since_ms, until_ms)
    inside = rows.with_columns(
        begin=pl.col("begin").clip(since_ms, until_ms), until=pl.col("until").clip(since_ms, until_ms), **columns
    )
    return inside.filter(pl.col("begin") < pl.col("until"))


def _group(name: str | None, rows: pl.DataFrame) -> WaitGroup:
    wait = pl.col("until") - pl.col("begin")
    sums = rows.select(
        jobs=pl.len(),
        open_jobs=pl.col("is_open").sum(),
        median_ms=wait.median(),
        p90_ms=wait.quantile(0.9, "linear"),
        wait_ms=wait.sum(),
        gpu_ms=(wait * pl.col("gpus")).sum(),
    ).row(0, named=True)
    times = rows.select(TIME_OF.values()).sum().row(0)
    gpu_times = rows.select(pl.col(name) * pl.col("gpus") for name in TIME_OF.values()).sum().row(0)
    return WaitGroup(
        name,
        **sums,
        cause_ms=dict(zip(CAUSES, times, strict=True)),
        cause_gpu_ms=dict(zip(CAUSES, gpu_times, strict=True)),
    )
