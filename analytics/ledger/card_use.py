"""How much of the card busy time used: its share of what the card can do at most, and the use of its tensor cores.

Utilization counts a GPU as busy while any kernel runs. The share of peak asks what the kernels did, and has bounds. It
is at least the largest measured share of LIMITS: at 100 % of one, the card can do no more. It is at most SM activity,
which counts an SM as soon as it has work, whatever that waits for. Without any of them the share is unknown.

`hourly` keeps both bounds and the use of tensor cores for the time with a kernel; groups of GPU time get them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from analytics.intervals import SPAN_MS, cut
from analytics.ledger.columns import Codes, Floats
from fallow.clock import HOUR_MS

LIMITS = {
    "tensor": "tensor_active_pct",
    "fp64": "fp64_active_pct",
    "fp32": "fp32_active_pct",
    "fp16": "fp16_active_pct",
    "dram": "dram_active_pct",
}
"""Columns of the gpu table with a share of what the card can do at most. Of equal shares the first is named."""

SM_ACTIVITY = "sm_active_pct"

TENSOR_USED_FROM_PCT = 1.0
"""Less tensor activity in a row counts as none: a few small products in ten seconds are no use of tensor cores."""


class PeakShares(NamedTuple):
    """Bounds of each row's share of peak in percent, NaN where not measured; `limit` is an index into LIMITS."""

    low_pct: Floats
    high_pct: Floats
    limit: Codes


def peak_shares(floats: Mapping[str, Floats], nothing: Floats) -> PeakShares:
    """Return the bounds of each row.

    A column that no row states is `nothing` itself, and so are bounds that no row has.
    Where no limit was measured, the share is at least 0; where SM activity was not, it is at most the utilization.
    """
    largest, limit = nothing, np.zeros(len(nothing), np.int32)
    for number, name in enumerate(LIMITS.values()):
        values = floats[name]
        if values is not nothing:
            limit[(values > largest) | (np.isnan(largest) & ~np.isnan(values))] = number
            largest = np.fmax(largest, values)
    sm = floats[SM_ACTIVITY]
    if largest is nothing and sm is nothing:
        return PeakShares(nothing, nothing, limit)
    low = np.where(np.isnan(largest) & ~np.isnan(sm), 0.0, largest)
    high = np.maximum(low, np.where(np.isnan(sm), floats["gpu_util_pct"], sm))
    return PeakShares(low, high, limit)


@dataclass(frozen=True)
class CardUse:
    """The busy GPU time of a group and what it used of its cards, in milliseconds of GPU time.

    Attributes:
        measured_ms: the part of `busy_ms` with a share of peak; `low_ms` and `high_ms`: that time multiplied by the
            bounds.
        peak_by: the one of LIMITS that was the largest for most of `low_ms`; None without any.
        tensor_measured_ms: the part of `busy_ms` with known tensor activity; `tensor_ms` is that time multiplied by it,
            and `tensor_unused_ms` the part of it below TENSOR_USED_FROM_PCT.
    """

    busy_ms: int
    measured_ms: int
    low_ms: int
    high_ms: int
    peak_by: str | None
    tensor_measured_ms: int
    tensor_ms: int
    tensor_unused_ms: int

    @property
    def peak_share_low(self) -> float | None:
        """Return the lower bound of the share of peak; None where it was not measured."""
        return _ratio(self.low_ms, self.measured_ms)

    @property
    def peak_share_high(self) -> float | None:
        """Return its upper bound."""
        return _ratio(self.high_ms, self.measured_ms)

    @property
    def peak_measured_share(self) -> float | None:
        """Return the share of the busy time with a share of peak."""
        return _ratio(self.measured_ms, self.busy_ms)

    @property
    def tensor_share(self) -> float | None:
        """Return the mean tensor activity as a share; None where it was not measured."""
        return _ratio(self.tensor_ms, self.tensor_measured_ms)

    @property
    def without_tensor_share(self) -> float | None:
        """Return the share of the busy time without tensor cores; None where tensor activity was not measured."""
        return _ratio(self.tensor_unused_ms, self.tensor_measured_ms)

    @property
    def tensor_measured_share(self) -> float | None:
        """Return the share of the busy time for which tensor activity is known."""
        return _ratio(self.tensor_measured_ms, self.busy_ms)


def _ratio(part_ms: int, whole_ms: int) -> float | None:
    return min(part_ms / whole_ms, 1.0) if whole_ms else None  # a GPU's own averages may lie a hair above 100


HOURLY_COLUMNS = (
    *("host", "gpu", "time", "observed_ms", "zero_ms"),
    *("peak_share_low_pct", "peak_share_high_pct", "peak_share_ms", "peak_share_by"),
    *("tensor_active_mean_pct", "tensor_used_ms", "tensor_unused_ms"),
)
_OF_USER = ("host", "gpu", "user")
_SUMS = ("busy_ms", "measured_ms", "low_ms", "high_ms", "tensor_measured_ms", "tensor_ms", "tensor_unused_ms")


def busy_hours(pieces: pl.DataFrame, hourly: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `pieces` in the state active, cut at full hours, with the sums of `CardUse` and `peak_by`.

    `pieces` have host, gpu, user, time, end, state, gpu_ms and kernel_share; `hourly` has HOURLY_COLUMNS. Without any
    measured hour there are no rows. An hour counts as measured for a user who has the GPU throughout it: else its
    figures are others' as well, which readers of the user's rows may not see.
    """
    hours = hourly.filter(pl.col("peak_share_ms") > 0)
    busy = pieces.filter(pl.col("state") == "active")
    if hours.is_empty():
        busy = busy.clear()
    own = cut(pieces.select(*_OF_USER, "time", "end"), HOUR_MS, "hour", sums=())
    whole_hours = own.group_by(*_OF_USER, "hour").agg(own_ms=SPAN_MS.sum()).filter(pl.col("own_ms") >= HOUR_MS)
    theirs = (
        whole_hours.with_columns(time=pl.col("hour") * HOUR_MS)
        .join(hours, on=("host", "gpu", "time"))
        .drop("time", "own_ms")
    )
    rows = cut(busy, HOUR_MS, "hour", sums=("gpu_ms",)).join(
        theirs, on=(*_OF_USER, "hour"), how="left", nulls_equal=True
    )
    kernel_ms, gpu_ms = pl.col("observed_ms") - pl.col("zero_ms"), pl.col("gpu_ms")
    # an hour may have other states beside this one, whose share with a kernel is not this one's
    own_share = pl.when(SPAN_MS < HOUR_MS).then("kernel_share")
    in_kernel = pl.coalesce(own_share, kernel_ms / pl.col("observed_ms"))
    tensor_ms = pl.col("tensor_used_ms") + pl.col("tensor_unused_ms")
    measured = gpu_ms * (pl.col("peak_share_ms") / kernel_ms).clip(upper_bound=1.0)
    tensor_measured = gpu_ms * (tensor_ms / kernel_ms).clip(upper_bound=1.0)
    sums = {
        "busy_ms": gpu_ms,
        "measured_ms": measured,
        "low_ms": measured * in_kernel * pl.col("peak_share_low_pct") / 100,
        "high_ms": measured * in_kernel * pl.col("peak_share_high_pct") / 100,
        "tensor_measured_ms": tensor_measured,
        "tensor_ms": tensor_measured * in_kernel * pl.col("tensor_active_mean_pct") / 100,
        "tensor_unused_ms": tensor_measured * pl.col("tensor_unused_ms") / tensor_ms,
    }
    # whole milliseconds add up to the same in any order
    whole = {name: each.cast(pl.Float64).fill_null(0.0).round().cast(pl.Int64) for name, each in sums.items()}
    return rows.with_columns(**whole).rename({"peak_share_by": "peak_by"})


def card_uses(hours: pl.DataFrame, group: str) -> dict[str, CardUse]:
    """Return the use of each group of `busy_hours`, by a column. A group without busy time has none."""
    by_limit = hours.drop_nulls("peak_by").group_by(group, "peak_by").agg(pl.col("low_ms").sum())
    most: dict[str, str] = dict(by_limit.sort("low_ms", "peak_by").select(group, "peak_by").iter_rows())
    sums = hours.group_by(group).agg(pl.col(_SUMS).sum()).sort(group)
    return {
        label: CardUse(peak_by=most.get(label), **dict(zip(_SUMS, spent, strict=True)))
        for label, *spent in sums.iter_rows()
    }
