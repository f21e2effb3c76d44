"""How the figures were come by, where that is weaker than gap-free utilization and a process list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.ledger.text import count, hours
from analytics.quality.model import Remark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.quality.model import Data


def unmeasured(data: Data) -> Iterator[Remark]:
    """GPUs without any utilization."""
    whole = pl.col("gpu_share") == 1  # of a split GPU, its instances tell
    sums = data.stretches.group_by("gpu").agg(pl.col("util_ms").sum(), whole=whole.all())
    never = sums.filter("whole", pl.col("util_ms") == 0).sort("gpu")
    if len(never):
        use = "its use is" if len(never) == 1 else "their use is"
        sentence = f"{count(len(never), 'GPU')} never gave a utilization: {use} unknown, not zero"
        yield Remark("unmeasured", sentence, len(never), never["gpu"][0])


def holder_by_memory(data: Data) -> Iterator[Remark]:
    """Memory that stands for a holder."""
    yield from _time_of(
        data,
        pl.col("holder_source") == "memory",
        "memory_holder",
        "GPU-hours count as in use because memory was allocated; no process list says by whom",
    )


def holder_unwatched(data: Data) -> Iterator[Remark]:
    """GPUs that are called free, or claimed without a process, although nobody could have seen a holder."""
    split = pl.col("gpu_share") < 1
    yield from _time_of(
        data,
        pl.col("holder_source").is_in(NOBODY_LOOKED) & ~split,
        "unwatched_holder",
        "GPU-hours count as free or only claimed because utilization was 0; neither processes nor memory were read, so "
        "that somebody may have held the GPU",
    )


def point_samples(data: Data) -> Iterator[Remark]:
    """Utilization that does not say how much of its interval it watched."""
    yield from _time_of(
        data,
        (pl.col("util_ms") > 0) & pl.col("coverage_ratio").is_null(),
        "point_samples",
        "GPU-hours rest on point samples that do not say how much of their interval they watched",
    )


def _time_of(data: Data, which: pl.Expr, kind: str, meaning: str) -> Iterator[Remark]:
    """A remark on the GPU time of some stretches, where there is any."""
    found = data.stretches.filter(which.fill_null(value=False))
    if len(found):
        span_ms = int((found["end"] - found["time"]).sum())
        gpus = found["gpu"].unique().sort()
        yield Remark(kind, f"{hours(span_ms)} {meaning}", len(gpus), gpus[0])
