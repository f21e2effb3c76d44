"""Moves data from the spool into the lake, file by file, each with the one before; retries if the lake is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import polars as pl
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from analytics.importers.model import TRUE_MS, Imported
from analytics.mapping.model import Exporter
from analytics.scraped.lake_writer import DayMerging, LakeWriter, WriterSettings
from analytics.scraped.otlp.messages import Point, points_of
from analytics.scraped.otlp.spool import RequestSpool, frames
from analytics.scraped.rows.metric_frame import scraped_units
from analytics.scraped.rows.model import Pace, RowSettings, Source
from analytics.scraped.rows.pace import DEFAULT_SCRAPE_MS
from analytics.scraped.rows.scraped_rows import find_source_paces, host_rows
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.series_labels import target_of
from analytics.scraped.serving_rows import served_models
from analytics.scraped.totals import ReadTotals
from analytics.scraped.who.label_runs import Given
from fallow.clock import DAY_MS, Clock
from fallow.errors import FallowError, LakeError, SpoolError
from fallow.lake import Lake
from fallow.lake_init import require_marker
from fallow.pseudonyms import Pseudonyms

ONE_PUSH_MS = 500
"""Instruments of a collection are read one by one, each with its own time; no source collects twice a second."""

KEPT_MS = DAY_MS
"""A restarted process may have other attributes: without this limit its old sums would stay for ever."""

SeriesKey = tuple[tuple[str, str], ...]

_POINT_SCHEMA = {**SAMPLE_SCHEMA, "start_ms": pl.Int64(), "target": pl.UInt32()}


@dataclass(frozen=True)
class DeltaSum:
    """The sum of the deltas of a series from `start_ms` until `until_ms`, the end of the newest of them."""

    total: float
    start_ms: int
    until_ms: int


def climbed(points: Iterable[Point], sums: dict[SeriesKey, DeltaSum]) -> Iterator[Point]:
    """Yield the points, each delta replaced by the sum up to it, and bring `sums` up to date.

    A delta that arrives after newer ones of its series is of no use to a sum that has a time, and is left out. A delta
    more than KEPT_MS after them begins a new sum, so the old one need not be kept.
    """
    deltas = []
    for point in points:
        if point.is_delta:
            deltas.append(point)
        else:
            yield point
    for point in sorted(deltas, key=lambda each: each.time_ms):
        key = series_key(point.labels)
        before = sums.get(key)
        if before is None or point.time_ms > before.until_ms + KEPT_MS:
            before = DeltaSum(0.0, point.start_ms, 0)
        if point.time_ms > before.until_ms:
            total = before.total + (point.value or 0.0)
            sums[key] = DeltaSum(total, before.start_ms, point.time_ms)
            yield replace(point, value=None if point.value is None else total, start_ms=before.start_ms, is_delta=False)


def series_key(labels: Labels) -> SeriesKey:
    return tuple(sorted(labels.items()))


@dataclass(frozen=True)
class WindowSamples:
    """The samples, and in `starts` the starts of sums: `series`, `time_ms`, `start_ms`."""

    samples: Samples
    starts: pl.DataFrame

    def counters_since(self, exporters: tuple[Exporter, ...]) -> pl.DataFrame:
        """Return `host`, `gpu`, `true_ms` and `start_ms`, the latest start where a GPU has several sums."""
        units = scraped_units(self.samples.labels, exporters)
        coded = {code: unit for unit, code in units.units.items()}
        names = [(number, coded[code].host, coded[code].gpu) for number, code in units.unit_of.items()]
        named = pl.DataFrame(names, {"series": pl.UInt32, "host": pl.String, "gpu": pl.String}, orient="row")
        found = self.starts.join(named, on="series").rename({"time_ms": "true_ms"})
        return found.group_by("host", "gpu", "true_ms").agg(pl.col("start_ms").max())


def window_samples(points: Iterable[Point]) -> WindowSamples:
    """Return samples in the order of SAMPLE_SCHEMA; of two points of one series and time the later one counts."""
    labels, frame = _point_frame(points)
    found = (
        _aligned_points(frame).unique(["series", "time_ms"], keep="last", maintain_order=True).sort("series", "time_ms")
    )
    starts = found.filter(pl.col("start_ms") > 0).select("series", "time_ms", "start_ms")
    return WindowSamples(Samples(tuple(labels), found.select(*SAMPLE_SCHEMA)), starts)


def _point_frame(points: Iterable[Point]) -> tuple[list[Labels], pl.DataFrame]:
    """Return every series once, and the points with _POINT_SCHEMA."""
    numbers: dict[SeriesKey, int] = {}
    targets: dict[tuple[str, ...], int] = {}
    labels: list[Labels] = []
    of_series: list[int] = []
    columns: Mapping[str, list[object]] = {name: [] for name in _POINT_SCHEMA}
    for point in points:
        number = numbers.setdefault(series_key(point.labels), len(labels))
        if number == len(labels):
            labels.append(point.labels)
            of_series.append(targets.setdefault(target_of(point.labels), len(targets)))
        row = (number, point.time_ms, point.value, point.start_ms, of_series[number])
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return labels, pl.DataFrame(columns, schema=_POINT_SCHEMA)


def _aligned_points(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the points with times of one target that are closer together than two pushes set to the first of them."""
    moments = frame.select("target", "time_ms").unique().sort("target", "time_ms")
    begins = (pl.col("time_ms").diff().over("target") > ONE_PUSH_MS).fill_null(value=True)
    pushes = moments.with_columns(push_ms=pl.when(begins).then("time_ms").forward_fill())
    joined = frame.join(pushes, on=["target", "time_ms"], how="left", maintain_order="left")
    return joined.with_columns(time_ms="push_ms")


_AHEAD = 8
"""Number of files: a source that pushes every minute appears twice in as many rounds of ten seconds."""


class SpoolDelivery:
    """Writes the spool into the lake, and deletes its files once they are in the lake.

    The newest delivered file stays until the next one is delivered. Its samples show how often a source pushes, the
    counter values before, and the start of a push that continues in the next file, after a restart too. Delivering
    twice is harmless.
    """

    def __init__(self, spool: RequestSpool, exporters: Sequence[Exporter], writer: LakeWriter) -> None:
        self._spool, self._exporters, self._writer = spool, tuple(exporters), writer
        kept = spool.delivered()
        self._last = kept[-1] if kept else None
        if kept[1:]:  # a process ended before it deleted the older one
            spool.forget(kept[:-1])
        self._sums: dict[SeriesKey, DeltaSum] = {}
        """Sums of all files before the last one; series without a continuation are left out."""

    def run(self, now_ms: int, totals: ReadTotals) -> None:
        """Deliver the files, and add to the totals.

        Raises LakeError: undelivered data is then still in the spool. Raises SpoolError for a file that was set aside.
        """
        self._writer.totals = totals
        segments = self._spool.rotate()
        for number, segment in enumerate(segments):
            try:
                paces = {} if self._last else self._first_paces(segments[number : number + _AHEAD], now_ms)
                if paces is None:
                    return
                self._deliver(segment, now_ms, paces)
            except (FallowError, OSError, MemoryError):  # not a fault of the file
                raise
            except Exception as error:  # whatever a client pushed, later data must not wait for ever
                kept = self._spool.set_aside(segment)
                what = f"the data in {segment} cannot be made into rows ({type(error).__name__}: {error})"
                raise SpoolError(what, f"it is set aside as {kept}: please report this") from error

    def _first_paces(self, segments: Sequence[Path], now_ms: int) -> Mapping[Source, Pace] | None:
        """Return how often the first file's sources push, by later files too; None if a second push must show it."""
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
        if window.since_ms is None:  # no answered request: opened and never used, or truncated
            self._spool.forget([segment])
            return
        settings = RowSettings(window.since_ms - ONE_PUSH_MS, now_ms + DAY_MS, paces=paces)
        hosts = host_rows(found.samples, self._exporters, settings)
        since = found.counters_since(self._exporters)
        self._write([_with_starts(rows, since) for rows in hosts], window.until_ms)
        served = served_models(found.samples, settings.since_ms, settings.until_ms)
        self._writer.write_servers(served, window.until_ms)
        kept = self._spool.mark_delivered(segment)
        if self._last is not None:
            self._spool.forget([self._last])
        going_on = {key: each for key, each in window.sums_before.items() if each.until_ms + KEPT_MS >= window.since_ms}
        self._last, self._sums = kept, going_on

    def _write(self, hosts: Sequence[Imported], until_ms: int) -> None:
        self._writer.begin_window()
        for rows in hosts:
            self._writer.write(self._writer.imported(rows))
            self._writer.totals.add_account(rows)
        self._writer.write_allocations(Given.of(hosts), None, until_ms)


class _Window:
    """A new file and the one before it; its attributes are valid once all its points were read."""

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


def _with_starts(rows: Imported, since: pl.DataFrame) -> Imported:
    """Return the rows with the starts that the sums themselves state (`counters_since`)."""
    if rows.gpu.is_empty() or since.is_empty():
        return rows
    own = since.filter(pl.col("host") == rows.host).drop("host")
    known = rows.gpu.with_columns(TRUE_MS).join(own, on=["gpu", "true_ms"], how="left", maintain_order="left")
    kind = rows.gpu.schema["time"]
    before = pl.col("counters_since") if "counters_since" in rows.gpu.columns else pl.lit(None, kind)
    starts = pl.coalesce(pl.col("start_ms").cast(kind), before)
    return replace(rows, gpu=known.with_columns(counters_since=starts).drop("true_ms", "start_ms"))


@dataclass
class DeliveryState:
    """The state of the delivery from the spool to the lake; `round_ms` is the time of the last attempt.

    `agent_rows` were left out because agents have them; `dropped` are samples and values that make no row.
    """

    round_ms: int
    agent_rows: int = 0
    dropped: int = 0
    last_success_ms: int | None = None
    trouble: str = ""


@dataclass
class DeliveryRounds:
    """Rounds of delivery; `tell` receives changes: that the lake takes no rows, or takes rows again."""

    spool: RequestSpool
    exporters: tuple[Exporter, ...]
    lake: Lake
    pseudonyms: Pseudonyms | None
    merging: DayMerging
    clock: Clock
    tell: Callable[[str], None]
    state: DeliveryState = field(init=False)
    _delivery: SpoolDelivery | None = None

    def __post_init__(self) -> None:
        self.state = DeliveryState(self.clock.now_ms())

    def run(self) -> None:
        """Deliver all data that can be delivered now."""
        state = self.state
        try:
            self._deliver()
        except (LakeError, SpoolError) as error:
            if str(error) != state.trouble:
                self.tell(f"{error}; new data is kept in the spool meanwhile")
            state.trouble = str(error)
        else:
            if state.trouble:
                self.tell("the lake takes rows again")
            state.trouble, state.last_success_ms = "", self.clock.now_ms()
        state.round_ms = self.clock.now_ms()

    def _deliver(self) -> None:
        require_marker(self.lake)  # an empty mount point must not become a lake
        if self._delivery is None:
            writer = LakeWriter(self.lake, WriterSettings(hourly=True, pseudonyms=self.pseudonyms), ReadTotals())
            self._delivery = SpoolDelivery(self.spool, self.exporters, writer)
        now_ms = self.clock.now_ms()
        totals = ReadTotals()
        try:
            self._delivery.run(now_ms, totals)
        finally:
            self.state.agent_rows += totals.of_agents
            self.state.dropped += totals.dropped.total()
        self.merging.run(now_ms, now_ms)
