"""How the figures were come by, where that is weaker than gap-free utilization and a process list."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.quantities import GpuHours
from analytics.language.sentences import tr, tr_many
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.quality.model import Data, Remark

_BY_MEMORY = "{hours} GPU-hours count as in use because memory was allocated; no process list says by whom"
_UNWATCHED = (
    "{hours} GPU-hours count as free or only reserved because utilization was 0; neither processes nor memory were read, so "
    "that somebody may have held the GPU"
)
_POINT_SAMPLES = "{hours} GPU-hours rest on point samples, which watched less than half of their time: what they leave open is stated beside the figures"


def unmeasured(data: Data) -> Iterator[Remark]:
    """GPUs without any utilization."""
    whole = pl.col("gpu_share") == 1  # of a split GPU, its instances tell
    sums = data.stretches.group_by("gpu").agg(pl.col("util_ms").sum(), whole=whole.all())
    never = sums.filter("whole", pl.col("util_ms") == 0).sort("gpu")
    if len(never):
        sentence = tr_many(
            "{number} GPU never gave a utilization: its use is unknown, not zero",
            "{number} GPUs never gave a utilization: their use is unknown, not zero",
            len(never),
        )
        yield Remark("unmeasured", sentence, len(never), never["gpu"][0])


def holder_by_memory(data: Data) -> Iterator[Remark]:
    """Memory that stands for a holder."""
    yield from _time_of(
        data,
        pl.col("holder_source") == "memory",
        "memory_holder",
        _BY_MEMORY,
    )


def holder_unwatched(data: Data) -> Iterator[Remark]:
    """GPUs that are called free, or reserved without a process, although nobody could have seen a holder."""
    split = pl.col("gpu_share") < 1
    yield from _time_of(
        data,
        pl.col("holder_source").is_in(NOBODY_LOOKED) & ~split,
        "unwatched_holder",
        _UNWATCHED,
    )


def point_samples(data: Data) -> Iterator[Remark]:
    """Utilization that does not say how much of its interval it watched."""
    yield from _time_of(
        data,
        pl.col("sampled_ms") > 0,
        "point_samples",
        _POINT_SAMPLES,
    )


def _time_of(data: Data, which: pl.Expr, kind: str, meaning: str) -> Iterator[Remark]:
    """A remark on the GPU time of some stretches, where there is any."""
    found = data.stretches.filter(which.fill_null(value=False))
    if len(found):
        span_ms = int((found["end"] - found["time"]).sum())
        gpus = found["gpu"].unique().sort()
        yield Remark(kind, tr(meaning, hours=GpuHours(span_ms)), len(gpus), gpus[0])
