"""The series of a GPU or a host in the visible part of the window, binned so that the browser gets few points.

A view of one team has only the rows within that team's own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.language.sentences import tr
from analytics.readings import binned, gpu_readings, only_during
from analytics.report.part_tables import host_hours, without_others
from dashboard.times import edges, visible, width_of
from dashboard.view import View
from fallow.clock import SECOND_MS

MOST_POINTS = 2_000
"""The most points of all lines together; with fewer rows, every row is a point."""
_TABLE_ROWS = 24


@dataclass(frozen=True)
class SeriesLine:
    """One series.

    Attributes:
        column: the column of the readings.
        name: the name that readers see.
        unit: the unit that readers see.
        scale: the column's value of one unit.
        digits: decimal places.
        top: the upper end of the axis; None where the values decide.
    """

    column: str
    name: str
    unit: str
    scale: float = 1.0
    digits: int = 1
    top: float | None = None


_GIB, _MB = 2.0**30, 1e6
GPU_LINES = (
    SeriesLine("gpu_util_pct", tr("GPU utilization"), "%", top=100.0),
    SeriesLine("sm_active_pct", tr("SM activity"), "%", top=100.0),
    SeriesLine("mem_used_bytes", tr("memory in use"), "GiB", _GIB),
    SeriesLine("power_w", tr("power"), "W", digits=0),
)
HOST_LINES = (
    SeriesLine("cpu_util_mean_pct", tr("CPU use, all CPUs"), "%", top=100.0),
    SeriesLine("disk_read_mean_bytes_per_s", tr("disks, read"), "MB/s", _MB),
    SeriesLine("disk_write_mean_bytes_per_s", tr("disks, written"), "MB/s", _MB),
    SeriesLine("net_receive_mean_bytes_per_s", tr("network, received"), "MB/s", _MB),
    SeriesLine("net_transmit_mean_bytes_per_s", tr("network, sent"), "MB/s", _MB),
)


@dataclass(frozen=True, eq=False)
class PageSeries:
    """The series of one GPU or host.

    Attributes:
        frame: a row per bin with `time` and, per line, `_min`, `_mean` and `_max`; null where unknown.
        coarse: the same in few bins, for a table.
        lines: the lines with known values.
        missing: the lines without known values.
        bin_ms: the width of a bin of `frame`.
        is_raw: true where no bin has more than one row.
    """

    frame: pl.DataFrame
    coarse: pl.DataFrame
    lines: tuple[SeriesLine, ...]
    missing: tuple[SeriesLine, ...]
    bin_ms: int
    is_raw: bool


def gpu_series(view: View, gpu: str) -> PageSeries:
    """Return the series of a GPU's own rows; raises LakeError and its kinds."""
    since_ms, until_ms = visible(view)
    spans = view.part.inside.segments.filter(pl.col("gpu") == gpu)
    rows = gpu_readings(view.whole.inputs.lake, gpu, spans, since_ms, until_ms)
    own = without_others(view.whole, view.report.scope, view.part.inside.segments, rows, pl.col("gpu") == gpu)
    return _series(view, own, spans, GPU_LINES)


def host_series(view: View, host: str) -> PageSeries:
    """Return the series of a host's hours from `host_hourly`.

    A view of some users has only the hours in which the host was theirs alone, for the whole hour.
    """
    since_ms, until_ms = visible(view)
    spans = view.part.inside.segments.filter(pl.col("host") == host)
    columns = [line.column for line in HOST_LINES]
    own = view.part.inside.segments
    hours = host_hours(view.whole, host, columns).filter(pl.col("time") >= since_ms, pl.col("time") < until_ms)
    rows = without_others(view.whole, view.report.scope, own, hours, pl.col("host") == host)
    return _series(view, rows, spans, HOST_LINES)


def _series(view: View, rows: pl.DataFrame, spans: pl.DataFrame, lines: Sequence[SeriesLine]) -> PageSeries:
    if not view.report.scope.is_all:
        rows = only_during(rows, spans)
    since_ms, until_ms = visible(view)
    known = tuple(line for line in lines if rows[line.column].null_count() < rows.height)
    names = [line.column for line in known]
    least_ms = int(rows["interval_ms"].median() or SECOND_MS)  # type: ignore[arg-type]  # of integers
    bin_ms = width_of(until_ms - since_ms, MOST_POINTS // max(1, len(known)), least_ms)
    coarse_ms = width_of(until_ms - since_ms, _TABLE_ROWS, least_ms)
    return PageSeries(
        frame=_bins(view, rows, names, bin_ms, least_ms),
        coarse=_bins(view, rows, names, coarse_ms, least_ms),
        lines=known,
        missing=tuple(line for line in lines if line not in known),
        bin_ms=bin_ms,
        is_raw=bin_ms <= least_ms,
    )


def _bins(view: View, rows: pl.DataFrame, names: Sequence[str], bin_ms: int, least_ms: int) -> pl.DataFrame:
    """Return the visible rows in bins; where a bin is no longer than a row's interval, the bins are those of the rows.

    Bins begin at round times in the UTC offset that the reader's zone has at the visible start.
    """
    since_ms, until_ms = visible(view)
    late_ms = int(edges(view.zone, since_ms, since_ms + 1, bin_ms)[0]) if bin_ms > least_ms else 0
    found = binned(rows.with_columns(pl.col("time") - late_ms), names, since_ms - late_ms, until_ms - late_ms, bin_ms)
    return found.with_columns(pl.col("time") + late_ms)
