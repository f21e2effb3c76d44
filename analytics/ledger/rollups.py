"""The hourly and daily tables beside the ledger, read when a rule asks for them.

Frames have the columns of their table, times as integer milliseconds, and are sorted by their keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analytics.frames import milliseconds
from fallow import parquet, schema
from fallow.clock import HOUR_MS, Window, floor_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fallow.lake import LakeFile

BINS = 101
"""Whole percents, 0 to 100."""

TABLES = (schema.HOURLY, schema.PROCESS_DAY, schema.HOST_HOURLY, schema.SERVING_HOURLY, schema.QUALITY)


@dataclass(frozen=True)
class Rollups:
    """The tables of TABLES inside a window: their kept files, and the frames of days that could not be kept."""

    files: Mapping[str, Sequence[LakeFile]]
    loose: Mapping[str, Sequence[pl.DataFrame]] = field(default_factory=dict)
    window: Window = field(default_factory=Window)
    _read: dict[tuple[str, tuple[str, ...]], pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def inside(self, window: Window) -> Rollups:
        """The same in a window: hours and days that begin before its end, and hours that reach into it."""
        since_ms = None if window.since_ms is None else floor_ms(window.since_ms, HOUR_MS)
        return Rollups(self.files, self.loose, Window(since_ms, window.until_ms), self._read)

    def until(self, until_ms: int) -> Rollups:
        """The same without what begins at or after a moment."""
        return self.inside(Window(None, until_ms))

    def hourly(self, *columns: str) -> pl.DataFrame:
        """The named columns of `hourly` (all but the histograms by default), with time, host and gpu."""
        wide = ("gpu_util_ms", "sm_active_ms")
        return self._frame(schema.HOURLY, columns or [name for name in schema.HOURLY.names if name not in wide])

    def processes(self) -> pl.DataFrame:
        """`process_day`."""
        return self._frame(schema.PROCESS_DAY, schema.PROCESS_DAY.names)

    def hosts(self) -> pl.DataFrame:
        """`host_hourly`."""
        return self._frame(schema.HOST_HOURLY, schema.HOST_HOURLY.names)

    def serving(self) -> pl.DataFrame:
        """`serving_hourly`."""
        return self._frame(schema.SERVING_HOURLY, schema.SERVING_HOURLY.names)

    def quality(self) -> pl.DataFrame:
        """`quality`."""
        return self._frame(schema.QUALITY, schema.QUALITY.names)

    def _frame(self, table: schema.Table, columns: Sequence[str]) -> pl.DataFrame:
        names = tuple(dict.fromkeys((*(name for name in ("time", "host", "gpu") if name in table.names), *columns)))
        key = (table.name, names)
        if key not in self._read:
            kept = milliseconds(parquet.read(self.files.get(table.name, ()), table, names).select(list(names)))
            loose = [frame.select(names) for frame in self.loose.get(table.name, ())]
            by = [name for name in ("gpu", "host", "time") if name in names]
            self._read[key] = pl.concat([kept, *loose], how="vertical_relaxed").sort(by)
        frame = self._read[key]
        if self.window.until_ms is not None:
            frame = frame.filter(pl.col("time") < self.window.until_ms)
        if self.window.since_ms is not None:
            frame = frame.filter(pl.col("end" if "end" in names else "time") >= self.window.since_ms)
        return frame


def histogram_sums(hours: pl.DataFrame, column: str, by: str = "gpu") -> dict[str, NDArray[np.int64]]:
    """Per value of `by`, the milliseconds at each whole percent, summed over the rows whose histogram is known."""
    known = hours.filter(pl.col(column).is_not_null()).sort(by)
    if known.is_empty():
        return {}
    values = known[column].explode().to_numpy().reshape(-1, BINS)
    names = known[by].to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], names[1:] != names[:-1])))
    sums = np.add.reduceat(values.astype(np.int64), starts, axis=0)
    return {str(names[start]): row for start, row in zip(starts, sums, strict=True)}


def percentile(histogram: NDArray[np.int64], share: float) -> float | None:
    """The whole percent below or at which `share` of the time lies, at most one point too low; None without any time."""
    total = int(histogram.sum())
    if not total:
        return None
    return float(np.searchsorted(np.cumsum(histogram), share * total))
