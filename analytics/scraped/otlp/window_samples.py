"""The points of a window as samples: sums climb, and what one push says has one time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl

from analytics.scraped.mapping.mapped_series import target_of
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.otlp.points import Point
from analytics.scraped.rows.scraped_units import scraped_units
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from fallow.clock import DAY_MS

ONE_PUSH_MS = 500
"""Instruments of one collection are read one after the other, each with its own time; nobody collects twice a second."""

KEPT_MS = DAY_MS
"""A process that begins anew may have other attributes: its old sums would stay for ever."""

SeriesKey = tuple[tuple[str, str], ...]

_POINT_SCHEMA = {**SAMPLE_SCHEMA, "start_ms": pl.Int64(), "target": pl.UInt32()}


@dataclass(frozen=True)
class DeltaSum:
    """What the deltas of a series add up to from `start_ms` until `until_ms`, the end of the newest of them."""

    total: float
    start_ms: int
    until_ms: int


def climbed(points: Iterable[Point], sums: dict[SeriesKey, DeltaSum]) -> Iterator[Point]:
    """The points with each delta as the sum up to it, and `sums` brought up to them.

    A delta that comes after newer ones of its series is of no use to a sum that has a time, and is left out. One that comes more than
    KEPT_MS after them begins a new sum: the old one need not be kept.
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
    """The samples, and in `starts` since when sums count: `series`, `time_ms`, `start_ms`."""

    samples: Samples
    starts: pl.DataFrame

    def counters_since(self, exporters: tuple[Exporter, ...]) -> pl.DataFrame:
        """`host`, `gpu`, `true_ms` and `start_ms`, the latest where a GPU has several sums."""
        units = scraped_units(self.samples.labels, exporters)
        coded = {code: unit for unit, code in units.units.items()}
        names = [(number, coded[code].host, coded[code].gpu) for number, code in units.unit_of.items()]
        named = pl.DataFrame(names, {"series": pl.UInt32, "host": pl.String, "gpu": pl.String}, orient="row")
        found = self.starts.join(named, on="series").rename({"time_ms": "true_ms"})
        return found.group_by("host", "gpu", "true_ms").agg(pl.col("start_ms").max())


def window_samples(points: Iterable[Point]) -> WindowSamples:
    """Samples in the order that SAMPLE_SCHEMA asks for; of two points of one series and time the later one counts."""
    labels, frame = _frame(points)
    found = _aligned(frame).unique(["series", "time_ms"], keep="last", maintain_order=True).sort("series", "time_ms")
    starts = found.filter(pl.col("start_ms") > 0).select("series", "time_ms", "start_ms")
    return WindowSamples(Samples(tuple(labels), found.select(*SAMPLE_SCHEMA)), starts)


def _frame(points: Iterable[Point]) -> tuple[list[Labels], pl.DataFrame]:
    """Every series once, and the points with _POINT_SCHEMA."""
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


def _aligned(frame: pl.DataFrame) -> pl.DataFrame:
    """Times of one target that lie closer together than two pushes ever do become the first of them."""
    moments = frame.select("target", "time_ms").unique().sort("target", "time_ms")
    begins = (pl.col("time_ms").diff().over("target") > ONE_PUSH_MS).fill_null(value=True)
    pushes = moments.with_columns(push_ms=pl.when(begins).then("time_ms").forward_fill())
    joined = frame.join(pushes, on=["target", "time_ms"], how="left", maintain_order="left")
    return joined.with_columns(time_ms="push_ms")
