"""What somebody may have at once against what they had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.states import ALLOCATED, IN_USE


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
    gpu_ms = float(own.select(((pl.col("end") - pl.col("time")) * pl.col("gpu_share")).sum()).item())
    return gpu_ms / window_ms if window_ms > 0 else None
