"""The history of each GPU in a ledger: when it was first and last observed, first used, and sums up to a day's end.

It is kept per day over all hosts, so a command that reads a few weeks has it for the years before without reading them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from analytics.decode import read_days
from analytics.frames import empty, typed
from analytics.intervals import SPAN_MS
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.ledger.gpu_states import STATES_OF_GPUS, states_of_month
from analytics.states import IN_USE, OCCUPIED, UNOCCUPIED, WITHOUT_EVIDENCE
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, utc_day
from fallow.lake import Lake
from fallow.quarantine import OnUnusable

_UNIT = ("gpu", "host")
_SUMS = ("used_ms", "unused_ms", "util_ms", "sample_count")
_MOST = ("last_seen", "gpu_util_max_pct", "mem_used_max_bytes", "unwatched")
_LEAST = ("first_seen", "first_use")
_OF_THE_DAY = ("day_known_ms", "day_active_ms")
ACTIVITY = ("gpu", "time", "known_ms", "active_ms")
"""Columns of `Earlier.activity` and `activity`; `time` is the start of the day."""
HISTORY_COLUMNS = (*STATES_OF_GPUS, "util_ms", "sample_count", "gpu_util_max_pct", "mem_used_max_bytes", "user_source")
"""Columns of the ledger from which `lifetimes` and `activity` follow."""


@dataclass(frozen=True)
class Earlier:
    """History of the days before those that were read, and the end of the days after them: empty by default."""

    rows: pl.DataFrame = field(default_factory=lambda: empty(schema.GPU_LIFETIME))
    """Rows of `gpu_lifetime` at the end of the last day before."""
    newest: pl.DataFrame | None = None
    """Rows of `gpu_lifetime` at the lake's end, where later days were left out."""
    dates: Sequence[str] = ()
    """The earlier days, in order."""
    lake: Lake | None = None
    """Keeps the ledger of the earlier days; None without any."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """By date a digest of the rows that the lake keeps in `ledger`."""
    days: pl.DataFrame | None = None
    """Earlier days that are in memory, as ACTIVITY."""
    older_states: pl.DataFrame | None = None
    """Earlier days that are in memory, as STATES_OF_GPUS."""
    on_unusable: OnUnusable | None = None
    """Receives unusable files."""
    _months: dict[str, pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)
    """The states of months that have been read."""

    def activity(self, since_ms: int) -> pl.DataFrame:
        """Return known and active time per GPU and day (ACTIVITY) of the earlier days, from one of them on."""
        dates = [date for date in self.dates if date >= utc_day(since_ms)]
        names = ("gpu", "time", *_OF_THE_DAY)
        files = self.lake.all_files(schema.GPU_LIFETIME.name, dates=dates) if self.lake is not None else []
        rows = read_days(files, schema.GPU_LIFETIME, names, self.on_unusable).filter(pl.col("day_known_ms") > 0)
        found = rows.select("gpu", "time", known_ms="day_known_ms", active_ms="day_active_ms")
        if self.days is None:
            return found
        days = self.days.filter(pl.col("time") >= floor_ms(since_ms, DAY_MS))
        return pl.concat([found, days], how="vertical_relaxed")

    def states(self, since_ms: int) -> pl.DataFrame:
        """Return STATES_OF_GPUS on the earlier days, from the day of a moment on; see `joined_states`."""
        start_ms, first = floor_ms(since_ms, DAY_MS), utc_day(since_ms)
        months = sorted({date[:7] for date in self.dates if date >= first})
        parts = [self._states_of(month) for month in months]
        parts += [] if self.older_states is None else [self.older_states]
        if not parts:
            return empty(schema.GPU_STATE)
        rows = pl.concat(parts, how="vertical_relaxed").filter(pl.col("end") > start_ms)
        return rows.with_columns(pl.col("time").clip(lower_bound=start_ms))

    def _states_of(self, month: str) -> pl.DataFrame:
        """Return the states of a month, or of its days before those that were read."""
        if month not in self._months and self.lake is not None:
            if month < self.dates[-1][:7]:
                found = states_of_month(self.lake, month, self.contents, self.on_unusable)
            else:
                dates = [date for date in self.dates if date[:7] == month]
                files = self.lake.all_files(schema.LEDGER.name, dates=dates)
                found = read_days(files, schema.LEDGER, STATES_OF_GPUS, self.on_unusable)
            self._months[month] = found
        return self._months[month]


def activity(segments: pl.DataFrame) -> pl.DataFrame:
    """Return known and active time per GPU and UTC day (ACTIVITY) of ledger rows, none of which crosses midnight."""
    known = segments.select("gpu", "time", "end", "state").filter(~pl.col("state").is_in(WITHOUT_EVIDENCE))
    active = pl.col("state").is_in(IN_USE)
    day = known.group_by("gpu", time=pl.col("time") // DAY_MS * DAY_MS)
    return day.agg(known_ms=SPAN_MS.sum(), active_ms=SPAN_MS.filter(active).sum()).select(ACTIVITY)


def lifetimes(segments: pl.DataFrame, earlier: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the history per GPU and host from the ledger's rows and those of `gpu_lifetime` before them."""
    found = _history(segments, _UNIT)
    if earlier is None or earlier.is_empty():
        return found
    both = pl.concat([earlier.select(found.columns), found], how="vertical_relaxed")
    return both.group_by(_UNIT).agg(pl.col(*_SUMS).sum(), pl.col(*_MOST).max(), pl.col(*_LEAST).min())


def _history(segments: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    state = pl.col("state")
    return segments.group_by(by).agg(
        used_ms=SPAN_MS.filter(state.is_in(OCCUPIED)).sum(),
        unused_ms=SPAN_MS.filter(state.is_in(UNOCCUPIED)).sum(),
        util_ms=pl.col("util_ms").sum(),
        sample_count=pl.col("sample_count").sum(),
        last_seen=pl.col("end").max(),
        gpu_util_max_pct=pl.col("gpu_util_max_pct").max(),
        mem_used_max_bytes=pl.col("mem_used_max_bytes").max(),
        unwatched=pl.col("user_source").is_in(UNWATCHED_SOURCES).any(),
        first_seen=pl.col("time").min(),
        first_use=pl.col("time").filter(state.is_in(OCCUPIED)).min(),
    )


def by_day(segments: pl.DataFrame, earlier: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the rows of `gpu_lifetime`: for each day of the ledger every GPU that was observed until its end.

    `earlier` are those of the last day before them, where these are not all of the ledger's days.
    """
    dated = segments.with_columns(day=pl.col("time") // DAY_MS * DAY_MS)
    days, units = dated.select("day").unique().sort("day"), dated.select(_UNIT).unique()
    before = None if earlier is None or earlier.is_empty() else earlier.rename({"time": "day"})
    worked = activity(segments).select("gpu", day="time", day_known_ms="known_ms", day_active_ms="active_ms")
    # the day's own time belongs to one of the GPU's hosts; else a sum over all of them counts it twice
    first = dated.group_by("gpu", "day").agg(pl.col("host").min())
    own = _history(dated, (*_UNIT, "day")).join(first.join(worked, on=("gpu", "day")), on=(*_UNIT, "day"), how="left")
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
