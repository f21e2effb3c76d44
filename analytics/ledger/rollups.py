"""The hourly and daily tables beside the ledger, read when a rule asks for them.

Frames have the columns of their table, times as integer milliseconds, and are sorted by their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.decode import read_days
from analytics.frames import empty
from analytics.ledger.columns import run_starts
from analytics.ledger.unused_files import Discard, discarding
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, Window, floor_ms, utc_day
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

_READERS = 2
"""Number of days whose histograms are read at a time."""

HISTOGRAMS = ("gpu_util_ms", "gpu_util_peak_ms", "sm_active_ms", "sm_active_peak_ms")
"""Columns of `hourly` that hold milliseconds at each whole percent."""

BINS = 101
"""Whole percents, 0 to 100."""

TABLES = (schema.HOURLY, schema.PROCESS_DAY, schema.HOST_HOURLY, schema.SERVING_HOURLY, schema.QUALITY)


@dataclass(frozen=True)
class Rollups:
    """The tables of TABLES inside a window."""

    files: Mapping[str, Sequence[LakeFile]]
    """Kept files, by table."""
    loose: Mapping[str, Sequence[pl.DataFrame]] = field(default_factory=dict)
    """Frames of days that could not be kept, by table."""
    window: Window = field(default_factory=Window)
    allocations: pl.DataFrame = field(default_factory=lambda: empty(schema.ALLOCATION).with_columns(host=pl.lit("")))
    """All allocations of the lake, whatever the window: ALLOCATION_COLUMNS and `host`."""
    discard: Discard | None = None
    """Removes a kept file."""
    _read: dict[tuple[str, tuple[str, ...], str], pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def inside(self, window: Window) -> Rollups:
        """Return the tables in a window: hours and days that begin before its end, and hours that reach into it."""
        since_ms = None if window.since_ms is None else floor_ms(window.since_ms, HOUR_MS)
        return replace(self, window=Window(since_ms, window.until_ms))

    def until(self, until_ms: int) -> Rollups:
        """Return the tables without rows that begin at or after a moment."""
        return self.inside(Window(self.window.since_ms, until_ms))

    def hourly(self, *columns: str, since_ms: int | None = None) -> pl.DataFrame:
        """Return columns of `hourly` (default: all but histograms) from a moment on, with time, host and gpu."""
        return self._frame(
            schema.HOURLY, columns or [name for name in schema.HOURLY.names if name not in HISTOGRAMS], since_ms
        )

    def processes(self, since_ms: int | None = None) -> pl.DataFrame:
        """Return `process_day`: processes that were listed at a moment or later."""
        return self._frame(schema.PROCESS_DAY, schema.PROCESS_DAY.names, since_ms)

    def hosts(self) -> pl.DataFrame:
        """Return `host_hourly`."""
        return self._frame(schema.HOST_HOURLY, schema.HOST_HOURLY.names)

    def serving(self, since_ms: int | None = None) -> pl.DataFrame:
        """Return `serving_hourly`, from a moment on."""
        return self._frame(schema.SERVING_HOURLY, schema.SERVING_HOURLY.names, since_ms)

    def quality(self, since_ms: int | None = None) -> pl.DataFrame:
        """Return `quality`, from a moment on."""
        return self._frame(schema.QUALITY, schema.QUALITY.names, since_ms)

    def histograms(self, columns: Sequence[str], hours: pl.DataFrame, groups: int) -> dict[str, NDArray[np.int64]]:
        """Return the milliseconds at each whole percent of some of HISTOGRAMS, summed over groups of hours.

        Only the days of these hours are read, and few at a time: both columns of a week of a thousand GPUs are 140 MB.

        Args:
            columns: the histograms, of HISTOGRAMS.
            hours: `host`, `gpu`, `time` and `group`, a number from 0.
            groups: how many groups there are.

        Returns:
            By column, one row of BINS per group, all 0 where no histogram of its hours is known.
        """
        names = ("time", "host", "gpu", *columns)
        by_day = hours.with_columns(day=pl.col("time") // DAY_MS).partition_by("day", as_dict=True, include_key=False)
        of_date = {utc_day(day * DAY_MS): rows for (day,), rows in by_day.items()}
        sums = {column: np.zeros((groups, BINS), np.int64) for column in columns}

        def of_file(file: LakeFile) -> list[_Sums]:
            return _sums(read_days([file], schema.HOURLY, names, self._damaged), columns, of_date[file.date])

        kept = [file for file in self.files.get(schema.HOURLY.name, ()) if file.date in of_date]
        with ThreadPoolExecutor(_READERS) as pool:
            found = list(pool.map(of_file, kept))
        loose = self.loose.get(schema.HOURLY.name, ())
        found += [_sums(frame.select(names), columns, hours) for frame in loose]
        for column, numbers, bins in (each for day in found for each in day):
            sums[column][numbers] += bins
        return sums

    def _frame(self, table: schema.LakeTable, columns: Sequence[str], since_ms: int | None = None) -> pl.DataFrame:
        """Return the rows that overlap the window; only the files of its days are opened."""
        names = tuple(dict.fromkeys((*(name for name in ("time", "host", "gpu") if name in table.names), *columns)))
        starts = [each for each in (since_ms, self.window.since_ms) if each is not None]
        first = utc_day(max(starts) - DAY_MS) if starts else ""  # an hour or a list may reach over midnight
        read = [(key, frame) for key, frame in list(self._read.items()) if key[0] == table.name]
        has_all = (frame for key, frame in read if key[2] <= first and {*names} <= {*key[1]})
        found = next(has_all, None)
        if found is None:
            files = [file for file in self.files.get(table.name, ()) if file.date >= first]
            kept = read_days(files, table, names, self._damaged)
            loose = [frame.select(names) for frame in self.loose.get(table.name, ())]
            by = [name for name in ("gpu", "host", "time") if name in names]
            found = pl.concat([kept, *loose], how="vertical_relaxed").sort(by, maintain_order=True)
            self._read[table.name, names, first] = found
            for key, _ in read:
                if first <= key[2] and {*key[1]} <= {*names}:  # the new frame has its rows
                    self._read.pop(key, None)
        return self._rows_inside(found.select(names), max(starts, default=None))

    @property
    def _damaged(self) -> OnUnusable | None:
        return None if self.discard is None else discarding(self.discard)

    def _rows_inside(self, frame: pl.DataFrame, since_ms: int | None) -> pl.DataFrame:
        """Return the rows that overlap the window. A frame wholly inside it is not copied: most windows have no end."""
        until_ms = self.window.until_ms
        last = "end" if "end" in frame.columns else "time"
        first_ms, latest_ms, last_ms = frame.select(
            pl.col("time").min().alias("first"), pl.col("time").max().alias("latest"), pl.col(last).min().alias("last")
        ).row(0)
        if until_ms is not None and latest_ms is not None and latest_ms >= until_ms:
            frame = frame.filter(pl.col("time") < until_ms)
        if since_ms is not None and first_ms is not None and last_ms < since_ms:
            frame = frame.filter(pl.col(last) >= since_ms)
        return frame


_Sums = tuple[str, "NDArray[np.uint32]", "NDArray[np.int64]"]
"""A column, groups that are all different, and their sums."""


def _sums(day: pl.DataFrame, columns: Sequence[str], hours: pl.DataFrame) -> list[_Sums]:
    """Return the sums of one day's hours by group; hours without a histogram are left out."""
    keys = day.select("time", "host", "gpu").with_row_index("row")
    # a join by one text takes two thirds of the time of one by two
    met = keys.join(hours, on=("gpu", "time")).filter(pl.col("host") == pl.col("host_right"))
    wanted = met.select("group", "row").sort("group", "row")
    rows, groups = wanted["row"].to_numpy(), wanted["group"].to_numpy()
    found = []
    for column in columns:
        known = day[column].is_not_null().to_numpy()
        there = known[rows]
        if there.any():
            bins = day[column].drop_nulls().explode().to_numpy().reshape(-1, BINS)
            own = groups[there]
            starts = run_starts(own)
            values = bins[(np.cumsum(known) - 1)[rows[there]]]
            found.append((column, own[starts], np.add.reduceat(values, starts, axis=0, dtype=np.int64)))
    return found


def percentiles(histograms: NDArray[np.int64], share: float) -> list[float | None]:
    """Return the whole percent within which `share` of each row's time lies, at most one too low; None without time."""
    total = histograms.sum(axis=1)
    below = (np.cumsum(histograms, axis=1) < share * total[:, None]).sum(axis=1)
    return [float(value) if known else None for value, known in zip(below, total, strict=True)]
