"""From the spool into the lake: file after file, each made into rows beside the one before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from analytics.scraped.host_rows import HostRows
from analytics.scraped.lake_writer import LakeWriter
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.otlp.points import Point, points_of
from analytics.scraped.otlp.spool import RequestSpool, frames
from analytics.scraped.otlp.window_samples import KEPT_MS, ONE_PUSH_MS, DeltaSum, SeriesKey, climbed, window_samples
from analytics.scraped.rows.pace import DEFAULT_SCRAPE_MS
from analytics.scraped.rows.row_settings import Pace, RowSettings, Source
from analytics.scraped.rows.scraped_rows import find_source_paces, host_rows
from analytics.scraped.totals import ReadTotals
from analytics.scraped.who.given import Given
from fallow.clock import DAY_MS
from fallow.errors import FallowError, SpoolError

_AHEAD = 8
"""Files: whoever pushes every minute is seen twice in as many rounds of ten seconds."""


class SpoolDelivery:
    """Writes what the spool has, and lets it go once it is in the lake.

    The newest file that was delivered stays until the next one is: its samples say how often a source pushes, what a counter
    climbed from, and what a push began that went on in the next file, after a restart too. Delivering twice is harmless.
    """

    def __init__(self, spool: RequestSpool, exporters: Sequence[Exporter], writer: LakeWriter) -> None:
        self._spool, self._exporters, self._writer = spool, tuple(exporters), writer
        kept = spool.delivered()
        self._last = kept[-1] if kept else None
        if kept[1:]:  # a process ended before it forgot the older one
            spool.forget(kept[:-1])
        self._sums: dict[SeriesKey, DeltaSum] = {}
        """Of all files before the last one; those that nothing goes on from are left out."""

    def run(self, now_ms: int, totals: ReadTotals) -> None:
        """Adds to the totals. Raises LakeError; what is not in the lake then is still in the spool. Raises SpoolError for a file that had to be set aside."""
        self._writer.totals = totals
        segments = self._spool.rotate()
        for number, segment in enumerate(segments):
            try:
                paces = {} if self._last else self._first_paces(segments[number : number + _AHEAD], now_ms)
                if paces is None:
                    return
                self._deliver(segment, now_ms, paces)
            except (FallowError, OSError, MemoryError):  # no fault of the file
                raise
            except Exception as error:  # whatever somebody pushed, what comes after it must not wait for ever
                kept = self._spool.set_aside(segment)
                what = f"what was pushed to {segment} cannot be made into rows ({type(error).__name__}: {error})"
                raise SpoolError(what, f"it is set aside as {kept}: please report it") from error

    def _first_paces(self, segments: Sequence[Path], now_ms: int) -> Mapping[Source, Pace] | None:
        """How often the sources of the very first file push, by the files after it too; None where only a second push will show it."""
        found = window_samples(climbed(chain.from_iterable(map(_read, segments)), {})).samples
        if found.frame.is_empty():
            return {}
        begins = found.frame.group_by("series").agg(pl.len(), pl.col("time_ms").min())
        if begins["len"].max() == 1 and now_ms - int(str(begins["time_ms"].min())) < DEFAULT_SCRAPE_MS:
            return None
        return find_source_paces(found, self._exporters)

    def _deliver(self, segment: Path, now_ms: int, paces: Mapping[Source, Pace]) -> None:
        window = _Window(self._last, segment, self._sums)
        found = window_samples(window.points())
        if window.since_ms is None:  # nothing that was answered: opened and never used, or cut off
            self._spool.forget([segment])
            return
        settings = RowSettings(window.since_ms - ONE_PUSH_MS, now_ms + DAY_MS, paces=paces)
        hosts = host_rows(found.samples, self._exporters, settings)
        since = found.counters_since(self._exporters)
        self._write([_with_starts(rows, since) for rows in hosts], window.until_ms)
        kept = self._spool.mark_delivered(segment)
        if self._last is not None:
            self._spool.forget([self._last])
        going_on = {key: each for key, each in window.sums_before.items() if each.until_ms + KEPT_MS >= window.since_ms}
        self._last, self._sums = kept, going_on

    def _write(self, hosts: Sequence[HostRows], until_ms: int) -> None:
        self._writer.begin_window()
        for rows in hosts:
            self._writer.write(self._writer.imported(rows))
            self._writer.totals.add_account(rows)
        self._writer.write_allocations(Given.of(hosts), None, until_ms)


class _Window:
    """A new file and the one before it; what it tells is right once its points were all taken."""

    def __init__(self, last: Path | None, new: Path, sums: dict[SeriesKey, DeltaSum]) -> None:
        self._last, self._new, self._sums = last, new, dict(sums)
        self.sums_before: dict[SeriesKey, DeltaSum] = {}
        self.since_ms: int | None = None
        self.until_ms = 0

    def points(self) -> Iterator[Point]:
        if self._last is not None:
            yield from climbed(_read(self._last), self._sums)
        self.sums_before = dict(self._sums)
        for point in climbed(_read(self._new), self._sums):
            self.since_ms = point.time_ms if self.since_ms is None else min(self.since_ms, point.time_ms)
            self.until_ms = max(self.until_ms, point.time_ms)
            yield point


def _read(segment: Path) -> Iterator[Point]:
    for frame in frames(segment):
        yield from points_of(ExportMetricsServiceRequest.FromString(frame))


def _with_starts(rows: HostRows, since: pl.DataFrame) -> HostRows:
    """`counters_since` as the sums themselves say it."""
    if rows.gpu.is_empty() or since.is_empty():
        return rows
    true_ms = pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)
    own = since.filter(pl.col("host") == rows.host).drop("host")
    known = rows.gpu.with_columns(true_ms=true_ms.cast(pl.Int64)).join(
        own, on=["gpu", "true_ms"], how="left", maintain_order="left"
    )
    kind = rows.gpu.schema["time"]
    before = pl.col("counters_since") if "counters_since" in rows.gpu.columns else pl.lit(None, kind)
    starts = pl.coalesce(pl.col("start_ms").cast(kind), before)
    return replace(rows, gpu=known.with_columns(counters_since=starts).drop("true_ms", "start_ms"))
