"""What a user's jobs were given in a window, and what somebody may have at once against what they had."""

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
    """One job of a holder; `name` is None for what runs without one, and where `shared` is true.

    On a GPU that others hold as well (`shared`) nobody can say whose job it is. `state_ms` is GPU time by state, the holder's
    share of it; `cost` is in the currency of the prices, None where a price is missing.
    """

    name: str | None
    shared: bool
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    state_ms: Mapping[str, float]
    first_ms: int
    last_ms: int
    cost: float | None

    @property
    def allocated_ms(self) -> float:
        """GPU time in all states of ALLOCATED."""
        return sum(self.state_ms.values())


def jobs(own: pl.DataFrame, costs: Costs) -> tuple[JobUse, ...]:
    """The jobs, the most GPU time first.

    Args:
        own: the ledger's rows narrowed to one holder (`analytics.scope`), with their share of GPUs that several hold.
        costs: what GPU time costs.
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
        hosts=tuple(sorted(set(rows["host"].to_list()))),
        state_ms={state: float(sums.get(state, 0.0)) for state in ALLOCATED},
        first_ms=min(rows["time"].to_list()),
        last_ms=max(rows["end"].to_list()),
        cost=costs.of(rows),
    )


@dataclass(frozen=True)
class QuotaUse:
    """GPUs at once over a window, a MIG instance by its share: means of the window, and each whole hour's most.

    `most` is None and the hours are 0 where the window has no whole hour; means are None for an empty window.
    """

    quota_gpus: float
    allocated_mean: float | None
    working_mean: float | None
    most: float | None
    hours: int
    hours_above: int


def against_quota(stretches: pl.DataFrame, quota_gpus: float, since_ms: int, until_ms: int) -> QuotaUse:
    """How a quota was made use of.

    Args:
        stretches: the ledger's rows of those whose quota it is, clipped to the window.
        quota_gpus: how many GPUs they may have at once.
        since_ms: start of the window.
        until_ms: its end.
    """
    rows = stretches.filter(pl.col("state").is_in(ALLOCATED)).with_columns(of=pl.lit(0))
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
