"""GPUs that a user's jobs had in a window, and the use of a quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.capacity.demand import hourly_most
from analytics.intervals import SPAN_MS
from analytics.ledger.usage import HAS_OTHERS
from analytics.money.costs import Costs
from analytics.states import ALLOCATED, IN_USE


@dataclass(frozen=True)
class JobUse:
    name: str | None
    """None for processes without a job, and on shared GPUs."""
    shared: bool
    """True on GPUs that others hold as well, where the job is unknown."""
    gpus: tuple[str, ...]
    state_ms: Mapping[str, float]
    """GPU time by state; the user's share of it."""
    first_ms: int
    last_ms: int
    cost: float | None
    """In the currency of the prices; None if a price is missing."""

    @property
    def allocated_ms(self) -> float:
        return sum(self.state_ms.values())


def jobs(own: pl.DataFrame, costs: Costs) -> tuple[JobUse, ...]:
    """Return the jobs, the most GPU time first.

    `own` are the ledger's rows narrowed to a user (`analytics.scope`), with the user's share of shared GPUs.
    """
    rows = own.filter(pl.col("state").is_in(ALLOCATED)).with_columns(shared=HAS_OTHERS)
    rows = rows.with_columns(job=pl.when(~pl.col("shared")).then("job"))
    found = [_job(part, costs) for part in rows.partition_by("job", "shared", maintain_order=True)]
    return tuple(sorted(found, key=lambda each: (-each.allocated_ms, each.name or "")))


def _job(rows: pl.DataFrame, costs: Costs) -> JobUse:
    gpu_ms = SPAN_MS * pl.col("gpu_share")
    sums = dict(rows.group_by("state").agg(gpu_ms.sum()).iter_rows())
    return JobUse(
        name=rows["job"][0],
        shared=rows["shared"][0],
        gpus=tuple(sorted(set(rows["gpu"].to_list()))),
        state_ms={state: float(sums.get(state, 0.0)) for state in ALLOCATED},
        first_ms=min(rows["time"].to_list()),
        last_ms=max(rows["end"].to_list()),
        cost=costs.of(rows),
    )


@dataclass(frozen=True)
class QuotaUse:
    """Use of a quota: GPUs at once over a window. A MIG instance counts its share."""

    quota_gpus: float
    allocated_mean: float | None
    """Mean over the window; None for an empty window."""
    working_mean: float | None
    """Mean over the window; None for an empty window."""
    most: float | None
    """GPUs of the highest whole hour; None without a whole hour."""
    hours: int
    """Whole hours of the window."""
    hours_above: int
    """Whole hours above the quota."""


def against_quota(segments: pl.DataFrame, quota_gpus: float, since_ms: int, until_ms: int) -> QuotaUse:
    """Return the use of a quota. `segments` are the ledger's rows of the quota's users, clipped to the window."""
    rows = segments.filter(pl.col("state").is_in(ALLOCATED)).with_columns(of=pl.lit(0))
    # one more of no weight, so that hours without any count as none
    frame = pl.DataFrame({"of": [0], "time": [since_ms], "end": [until_ms], "gpu_share": [0.0]})
    spans = pl.concat([rows.select(frame.columns), frame], how="vertical_relaxed")
    most = hourly_most(spans, ("of",), since_ms, until_ms)["most"]
    return QuotaUse(
        quota_gpus=quota_gpus,
        allocated_mean=_mean(rows, ALLOCATED, until_ms - since_ms),
        working_mean=_mean(rows, IN_USE, until_ms - since_ms),
        most=None if most.is_empty() else max(most.to_list()),
        hours=most.len(),
        hours_above=sum(each > quota_gpus + 1e-6 for each in most.to_list()),
    )


def _mean(rows: pl.DataFrame, states: Sequence[str], window_ms: int) -> float | None:
    own = rows.filter(pl.col("state").is_in(states))
    gpu_ms = float(own.select((SPAN_MS * pl.col("gpu_share")).sum()).item())
    return gpu_ms / window_ms if window_ms > 0 else None
