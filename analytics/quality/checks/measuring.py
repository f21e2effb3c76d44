"""Figures whose source is weaker than gap-free utilization and a process list."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.quantities import GpuHours
from analytics.language.sentences import tr, tr_many
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.quality.model import Data, Remark

_BY_MEMORY = "{hours} GPU-hours count as in use because memory was allocated; no process list names the user"
_UNWATCHED = (
    "{hours} GPU-hours count as free or only reserved because utilization was 0; neither processes nor memory were read, so "
    "the GPU may have had a user"
)
_POINT_SAMPLES = "{hours} GPU-hours rest on point samples, which watched less than half of their time: the uncertain part is stated beside the figures"


def unmeasured(data: Data) -> Iterator[Remark]:
    """Report GPUs without any utilization."""
    whole = pl.col("gpu_share") == 1  # a split GPU is measured by its instances
    sums = data.segments.group_by("gpu").agg(pl.col("util_ms").sum(), whole=whole.all())
    never = sums.filter("whole", pl.col("util_ms") == 0).sort("gpu")
    if len(never):
        sentence = tr_many(
            "{number} GPU never reported utilization: its use is unknown, not zero",
            "{number} GPUs never reported utilization: their use is unknown, not zero",
            len(never),
        )
        yield Remark("unmeasured", sentence, len(never), never["gpu"][0])


def user_by_memory(data: Data) -> Iterator[Remark]:
    """Report memory that counts as a user."""
    yield from _time_of(data, pl.col("user_source") == "memory", "memory_user", _BY_MEMORY)


def user_unwatched(data: Data) -> Iterator[Remark]:
    """Report GPUs that are called free, or reserved without a process, although a user could not have been observed."""
    split = pl.col("gpu_share") < 1
    yield from _time_of(data, pl.col("user_source").is_in(NOBODY_LOOKED) & ~split, "unwatched_user", _UNWATCHED)


def point_samples(data: Data) -> Iterator[Remark]:
    """Report utilization that does not state how much of its interval it watched."""
    yield from _time_of(data, pl.col("sampled_ms") > 0, "point_samples", _POINT_SAMPLES)


def _time_of(data: Data, which: pl.Expr, kind: str, meaning: str) -> Iterator[Remark]:
    """Report the GPU time of some segments, where there is any."""
    found = data.segments.filter(which.fill_null(value=False))
    if len(found):
        span_ms = int((found["end"] - found["time"]).sum())
        gpus = found["gpu"].unique().sort()
        yield Remark(kind, tr(meaning, hours=GpuHours(span_ms)), len(gpus), gpus[0])
