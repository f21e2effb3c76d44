"""The series of a GPU or a host in what is in sight of the window, binned so that the browser gets few points.

Whoever asks for a team's part gets the rows that lie inside that team's own time, and no others.
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
"""Of all lines together: below it every row is a point of its own."""
_TABLE_ROWS = 24


@dataclass(frozen=True)
class SeriesLine:
    """One series: its column, what it is called, and its unit, of which one is `scale` of the column's."""

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
    """`frame` has a row per bin with `time` and per line `_min`, `_mean` and `_max`, null where nothing is known.

    `lines` are those of which anything is known, `missing` the others; `coarse` is the same in few bins, for a table.
    `is_raw` says that no bin holds more than one row.
    """

    frame: pl.DataFrame
    coarse: pl.DataFrame
    lines: tuple[SeriesLine, ...]
    missing: tuple[SeriesLine, ...]
    bin_ms: int
    is_raw: bool


def gpu_series(view: View, gpu: str) -> PageSeries:
    """A GPU's own rows; raises LakeError and its kinds."""
    since_ms, until_ms = visible(view)
    spans = view.part.inside.stretches.filter(pl.col("gpu") == gpu)
    rows = gpu_readings(view.whole.inputs.lake, gpu, spans, since_ms, until_ms)
    own = without_others(view.whole, view.report.scope, view.part.inside.stretches, rows, pl.col("gpu") == gpu)
    return _series(view, own, spans, GPU_LINES)


def host_series(view: View, host: str) -> PageSeries:
    """A host's hours from `host_hourly`; of the part of people only hours in which it was theirs alone, all the time."""
    since_ms, until_ms = visible(view)
    spans = view.part.inside.stretches.filter(pl.col("host") == host)
    columns = [line.column for line in HOST_LINES]
    own = view.part.inside.stretches
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
        frame=_binned(view, rows, names, bin_ms, least_ms),
        coarse=_binned(view, rows, names, coarse_ms, least_ms),
        lines=known,
        missing=tuple(line for line in lines if line not in known),
        bin_ms=bin_ms,
        is_raw=bin_ms <= least_ms,
    )


def _binned(view: View, rows: pl.DataFrame, names: Sequence[str], bin_ms: int, least_ms: int) -> pl.DataFrame:
    """Bins of what is in sight, on round times that the reader's clocks showed at its start; rows as they are where each has one."""
    since_ms, until_ms = visible(view)
    late_ms = int(edges(view.zone, since_ms, since_ms + 1, bin_ms)[0]) if bin_ms > least_ms else 0
    found = binned(rows.with_columns(pl.col("time") - late_ms), names, since_ms - late_ms, until_ms - late_ms, bin_ms)
    return found.with_columns(pl.col("time") + late_ms)
