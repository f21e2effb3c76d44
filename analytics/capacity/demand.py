"""How many GPUs were wanted at once: each hour's most, how many hours reached each level, and what fewer GPUs would have meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.states import ALLOCATED, IN_USE

_STEPS_MOST = 10
_BLOCK = 8

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "allocated": ALLOCATED,
    "allocated_or_unknown": (*ALLOCATED, "unknown"),
    "working": IN_USE,
    "working_or_unknown": (*IN_USE, "unknown"),
    "unknown": ("unknown",),
}


def demand(stretches: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """The most GPUs at once in each whole hour of the window in which anything was in the ledger, by time.

    Columns: `time` (start of the hour), `there`, `allocated` (reserved, held or working), `working` (low or active), `unknown`,
    and `allocated_or_unknown` and `working_or_unknown`, the most that it may have been: what nobody saw is no idle time.

    Args:
        stretches: the ledger's rows; a MIG instance counts its share.
        since_ms: start of the window; an hour that began before is left out.
        until_ms: its end; the hour that holds it is left out.
    """
    rows = stretches.with_columns(of=pl.lit(0))
    found = hourly_most(rows, ("of",), since_ms, until_ms).rename({"most": "there"}).filter(pl.col("there") > 0)
    for name, states in _COUNTED.items():
        most = hourly_most(rows.filter(pl.col("state").is_in(states)), ("of",), since_ms, until_ms)
        found = found.join(most.rename({"most": name}), on=("of", "time"), how="left")
    return found.drop("of").with_columns(pl.col(list(_COUNTED)).fill_null(0.0)).sort("time")


def duration(levels: pl.Series) -> pl.DataFrame:
    """The demand duration curve: for each different level, the highest first, in how many hours at least so much was wanted.

    Columns: `gpus` and `hours`.
    """
    counts = pl.DataFrame({"gpus": levels}).group_by("gpus").agg(hours=pl.len().cast(pl.Int64))
    return counts.sort("gpus", descending=True).with_columns(pl.col("hours").cum_sum())


@dataclass(frozen=True)
class WhatIf:
    """In how many hours more was wanted at once than `left` GPUs, had `gone` of those of today not been there.

    The two `_most` count the hours in which it may have been so: what nobody saw counts as wanted.
    """

    gone: int
    left: float
    allocated_hours: int
    allocated_hours_most: int
    working_hours: int
    working_hours_most: int


def what_if(hours: pl.DataFrame) -> tuple[WhatIf, ...]:
    """What it would have meant to have fewer GPUs; nothing where there is no hour.

    In about ten steps, and for the most GPUs that in no hour were wanted, or in no hour worked.

    Args:
        hours: those of `demand`; the GPUs of today are those of its last hour.
    """
    if hours.is_empty():
        return ()
    there = float(hours["there"][-1])
    spare = (int(there - max(hours[name].to_list()) + 1e-6) for name in ("allocated_or_unknown", "working_or_unknown"))
    gone = sorted({*steps(int(there)), *(each for each in spare if each > 0)})
    return tuple(_without(hours, each, there - each) for each in gone)


def steps(gpus: int) -> list[int]:
    """How many GPUs may be thought away: 1, 2, 4, then whole blocks of eight, up to all of them."""
    width = _BLOCK
    while gpus // width > _STEPS_MOST:
        width *= 2
    return [each for each in (1, 2, 4, *range(width, gpus + 1, width)) if each <= gpus]


def _without(hours: pl.DataFrame, gone: int, left: float) -> WhatIf:
    def above(column: str) -> int:
        # sums of sevenths are off by less than this
        return hours.filter(pl.col(column) > left + 1e-6).height

    return WhatIf(
        gone=gone,
        left=left,
        allocated_hours=above("allocated"),
        allocated_hours_most=above("allocated_or_unknown"),
        working_hours=above("working"),
        working_hours_most=above("working_or_unknown"),
    )
