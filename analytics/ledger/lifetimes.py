"""What a ledger knows of each GPU's whole life: when it was first and last seen, when first used, and sums up to a day's end.

Kept per day over all hosts, so that a command that reads a few weeks knows it of the years before without reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from analytics.decode import read_days
from analytics.frames import empty, typed
from analytics.intervals import SPAN_MS
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.states import IN_USE, OCCUPIED, UNOCCUPIED, WITHOUT_EVIDENCE
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, utc_day
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

_UNIT = ("gpu", "host")
_SUMS = ("used_ms", "unused_ms", "util_ms", "sample_count")
_MOST = ("last_seen", "gpu_util_max_pct", "mem_used_max_bytes", "unwatched")
_LEAST = ("first_seen", "first_use")
_OF_THE_DAY = ("day_known_ms", "day_active_ms")
ACTIVITY = ("gpu", "time", "known_ms", "active_ms")
"""Columns of `Earlier.activity` and `activity`; `time` is the start of the day."""


@dataclass(frozen=True)
class Earlier:
    """What is known of the days before those that were read, and of the end of those that were not: nothing by default.

    `rows` are those of `gpu_lifetime` at the end of the last day before, `newest` those at the lake's end where days after were
    left out. The days before themselves are in `files` and, as ACTIVITY, in `days`. A file that cannot be used is told
    to `on_unusable`.
    """

    rows: pl.DataFrame = field(default_factory=lambda: empty(schema.GPU_LIFETIME))
    newest: pl.DataFrame | None = None
    files: Sequence[LakeFile] = ()
    days: pl.DataFrame | None = None
    on_unusable: OnUnusable | None = None

    def activity(self, since_ms: int) -> pl.DataFrame:
        """Known and active time per GPU and day (ACTIVITY) of the days before, from one on."""
        dates = [file for file in self.files if file.date >= utc_day(since_ms)]
        names = ("gpu", "time", *_OF_THE_DAY)
        rows = read_days(dates, schema.GPU_LIFETIME, names, self.on_unusable).filter(pl.col("day_known_ms") > 0)
        found = rows.select("gpu", "time", known_ms="day_known_ms", active_ms="day_active_ms")
        if self.days is None:
            return found
        days = self.days.filter(pl.col("time") >= floor_ms(since_ms, DAY_MS))
        return pl.concat([found, days], how="vertical_relaxed")


def activity(stretches: pl.DataFrame) -> pl.DataFrame:
    """Known and active time per GPU and UTC day (ACTIVITY) of ledger rows, none of which crosses midnight."""
    known = stretches.filter(~pl.col("state").is_in(WITHOUT_EVIDENCE))
    active = pl.col("state").is_in(IN_USE)
    day = known.group_by("gpu", time=pl.col("time") // DAY_MS * DAY_MS)
    return day.agg(known_ms=SPAN_MS.sum(), active_ms=SPAN_MS.filter(active).sum()).select(ACTIVITY)


def lifetimes(stretches: pl.DataFrame, earlier: pl.DataFrame | None = None) -> pl.DataFrame:
    """Per GPU and host what the ledger's rows and those of `gpu_lifetime` before them know."""
    found = _of(stretches, _UNIT)
    if earlier is None or earlier.is_empty():
        return found
    both = pl.concat([earlier.select(found.columns), found], how="vertical_relaxed")
    return both.group_by(_UNIT).agg(pl.col(*_SUMS).sum(), pl.col(*_MOST).max(), pl.col(*_LEAST).min())


def _of(stretches: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    state = pl.col("state")
    return stretches.group_by(by).agg(
        used_ms=SPAN_MS.filter(state.is_in(OCCUPIED)).sum(),
        unused_ms=SPAN_MS.filter(state.is_in(UNOCCUPIED)).sum(),
        util_ms=pl.col("util_ms").sum(),
        sample_count=pl.col("sample_count").sum(),
        last_seen=pl.col("end").max(),
        gpu_util_max_pct=pl.col("gpu_util_max_pct").max(),
        mem_used_max_bytes=pl.col("mem_used_max_bytes").max(),
        unwatched=pl.col("holder_source").is_in(NOBODY_LOOKED).any(),
        first_seen=pl.col("time").min(),
        first_use=pl.col("time").filter(state.is_in(OCCUPIED)).min(),
    )


def by_day(stretches: pl.DataFrame, earlier: pl.DataFrame | None = None) -> pl.DataFrame:
    """The rows of `gpu_lifetime`: of each day of the ledger every GPU that was seen until its end.

    `earlier` are those of the last day before them, where these are not all of the ledger's days.
    """
    dated = stretches.with_columns(day=pl.col("time") // DAY_MS * DAY_MS)
    days, units = dated.select("day").unique().sort("day"), dated.select(_UNIT).unique()
    before = None if earlier is None or earlier.is_empty() else earlier.rename({"time": "day"})
    worked = activity(stretches).select("gpu", day="time", day_known_ms="known_ms", day_active_ms="active_ms")
    # the day's own time belongs to one of the GPU's hosts, lest a sum over all of them counts it twice
    first = dated.group_by("gpu", "day").agg(pl.col("host").min())
    own = _of(dated, (*_UNIT, "day")).join(first.join(worked, on=("gpu", "day")), on=(*_UNIT, "day"), how="left")
    if before is not None:
        own = pl.concat([before.select(own.columns), own], how="vertical_relaxed")
        days, units = own.select("day").unique().sort("day"), own.select(_UNIT).unique()
    grid = days.join(units, how="cross").join(own, on=("day", *_UNIT), how="left").sort(*_UNIT, "day")
    grid = grid.with_columns(
        pl.col(*_SUMS).fill_null(0).cum_sum().over(_UNIT),
        pl.col(*_OF_THE_DAY).fill_null(0),
        pl.col("unwatched").fill_null(value=False).cast(pl.Int8).cum_max().over(_UNIT).cast(pl.Boolean),
        *(pl.col(name).cum_max().forward_fill().over(_UNIT) for name in _MOST if name != "unwatched"),
        *(pl.col(name).cum_min().forward_fill().over(_UNIT) for name in _LEAST),
    )
    known = grid.filter(pl.col("first_seen").is_not_null()).join(dated.select("day").unique(), on="day", how="semi")
    return typed(known.with_columns(time="day"), schema.GPU_LIFETIME)
