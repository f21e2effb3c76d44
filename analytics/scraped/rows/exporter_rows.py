"""The rows from one exporter's samples: of GPUs and of hosts, in the lake's columns, repeated readings once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from analytics.mapping.model import Exporter, MappedMetric
from analytics.scraped.rows.metric_frame import Ints, MetricFrame, ScrapedUnit, ScrapedUnits
from analytics.scraped.rows.model import Pace, Source
from analytics.scraped.rows.pace import DEFAULT_SCRAPE_MS, Paces, find_paces, new_readings, scrapes_of
from fallow import schema
from fallow.clock import SECOND_MS

COUNTERS = (
    "energy_mj",
    "throttled_power_cap_ms",
    "throttled_sync_boost_ms",
    "throttled_sw_thermal_ms",
    "throttled_hw_thermal_ms",
    "throttled_power_brake_ms",
)
"""Columns of counters; a counter that fills any other column becomes a rate."""


def lake_columns(exporter: Exporter, known: list[str], table: str) -> dict[str, pl.Expr]:
    """Return the columns of a table that metrics of the exporter fill; `known`: the metrics that were read (positions).

    The expressions are over a frame of unit, time_ms, interval_ms, average_coverage, scrape_coverage and the metrics.
    Of the metrics of one column the first with a value counts; a column without a metric of its own is the sum of
    others.
    """
    filling = defaultdict[str, list[tuple[MappedMetric, pl.Expr]]](list)
    for position, metric in enumerate(exporter.metrics):
        if metric.table == table and str(position) in known:
            filling[metric.column].append((metric, _value(metric, pl.col(str(position)))))
    found: dict[str, pl.Expr] = {}
    for column, metrics in filling.items():
        if column == "gpu_util_pct":
            found |= _utilization(metrics)
        else:
            found[column] = pl.coalesce(value for _, value in metrics)
    for combined in exporter.combined:
        add, subtract = (_positions(exporter, names, known) for names in (combined.add, combined.subtract))
        if combined.table == table and None not in (*add, *subtract):
            total = sum(map(pl.col, map(str, add)), pl.lit(0.0)) - sum(map(pl.col, map(str, subtract)), pl.lit(0.0))
            own = found.get(combined.column)
            found[combined.column] = (
                total * combined.factor if own is None else pl.coalesce(own, total * combined.factor)
            )
    return found


def _positions(exporter: Exporter, names: tuple[str, ...], known: list[str]) -> list[str | None]:
    """Return the positions of the metrics with these names; None for a metric that was not read."""
    read = {exporter.metrics[int(position)].metric: position for position in known}
    return [read.get(name) for name in names]


def _value(metric: MappedMetric, read: pl.Expr) -> pl.Expr:
    if metric.kind != "counter" or metric.column in COUNTERS:
        return read * metric.factor
    passed_ms = pl.col("time_ms").diff()
    goes_on = (
        (pl.col("unit").diff() == 0) & (read.diff() >= 0) & (passed_ms <= schema.GAP_INTERVALS * pl.col("interval_ms"))
    )
    return pl.when(goes_on).then(read.diff() / passed_ms * SECOND_MS * metric.factor)


def _utilization(metrics: list[tuple[MappedMetric, pl.Expr]]) -> dict[str, pl.Expr]:
    """Return utilization and its coverage, both by one metric in each row: the first that has a value.

    A value of 0 yields to another one above it: work that either metric shows did happen.
    """
    value, coverage = pl.lit(None, pl.Float64), pl.lit(None, pl.Float64)
    for metric, own in reversed(metrics):
        counts = own.is_not_null() & ~((own == 0) & (value > 0).fill_null(value=False))
        value = pl.when(counts).then(own).otherwise(value)
        coverage = pl.when(counts).then(_coverage(metric)).otherwise(coverage)
    return {"gpu_util_pct": value, "gpu_util_coverage_ratio": coverage}


def _coverage(metric: MappedMetric) -> pl.Expr:
    """Return the share of its row that a value describes; null where it is unknown."""
    if metric.kind == "average":
        since_scrape = metric.covers_s is not None and math.isinf(metric.covers_s)
        return pl.col("scrape_coverage" if since_scrape else "average_coverage")
    if metric.covers_s is None:
        return pl.lit(None, pl.Float64)
    return pl.min_horizontal(metric.covers_s * SECOND_MS / pl.col("interval_ms"), 1.0)


_PAGE = 5
"""Parts of a source's name that distinguish pages; the others distinguish servers."""

DEVICE_PREFIX = "device."
"""Prefix for columns of `device` in frames of rows."""

GIVEN_PREFIX = "given."
"""Prefix for columns whose value names the user of a GPU."""

_ROW = ("unit", "gpu", "host", "source", "time_ms", "interval_ms", "ended")


@dataclass(frozen=True)
class UnitCodes:
    """The units by their code: hosts, GPUs and sources as codes into their names. A host has the GPU -1.

    Of several sources of one GPU, the source with the lower code comes first: by the order of the exporters, then by
    name.
    """

    units: tuple[ScrapedUnit, ...]
    hosts: tuple[str, ...]
    gpus: tuple[str, ...]
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, found: ScrapedUnits, exporters: Sequence[Exporter]) -> UnitCodes:
        units = tuple(found.units)
        gpus = dict.fromkeys(name for unit in units for name in (unit.gpu, unit.parent) if name)
        order = {exporter.name: number for number, exporter in enumerate(exporters)}
        sources = sorted({unit.source for unit in units}, key=lambda source: (order[source[0]], source))
        return cls(units, tuple(dict.fromkeys(unit.host for unit in units)), tuple(gpus), tuple(sources))

    @cached_property
    def host(self) -> Ints:
        return _codes(self.hosts, [unit.host for unit in self.units])

    @cached_property
    def gpu(self) -> Ints:
        return _codes(self.gpus, [unit.gpu for unit in self.units])

    @cached_property
    def parent(self) -> Ints:
        return _codes(self.gpus, [unit.parent for unit in self.units])

    @cached_property
    def source(self) -> Ints:
        return _codes(self.sources, [unit.source for unit in self.units])


def _codes(names: tuple[object, ...], values: list[str] | list[Source]) -> Ints:
    known = {name: code for code, name in enumerate(names)}
    return np.array([known.get(value, -1) for value in values], np.int64)


@dataclass(frozen=True)
class ExporterRows:
    """Rows of one exporter.

    `gpus` and `hosts` have codes (unit, gpu, host, source), time_ms, interval_ms, ended and lake columns.
    """

    exporter: Exporter
    paces: Paces
    gpus: pl.DataFrame
    """Also columns of `device` behind DEVICE_PREFIX, of users behind GIVEN_PREFIX, and `code` of the newest XID."""
    hosts: pl.DataFrame
    repeated: pl.DataFrame
    """host and len: the number of rows from scrapes that showed the reading of the one before."""


def exporter_rows(
    read: MetricFrame, codes: UnitCodes, known: Mapping[Source, Pace], collect_ms: int | None
) -> ExporterRows:
    """Return the rows; `known`: paces of sources; `collect_ms`: how often the exporter reads, None if not set."""
    unit = read.frame["unit"].to_numpy()
    frame = read.frame.with_columns(gpu=codes.gpu[unit], host=codes.host[unit], source=codes.source[unit])
    metrics = [name for name in read.frame.columns if name.isdigit()]
    shown = pl.col("unit", *metrics)
    changed = pl.any_horizontal(shown.ne_missing(shown.shift(1)))
    scrapes = scrapes_of(frame.select("unit", "source", "time_ms", "ended", changed=changed))
    by_code = {code: known[source] for code, source in enumerate(codes.sources) if source in known}
    paces = find_paces(scrapes, read.exporter, by_code, collect_ms)
    frame, repeated = _without_repeats(frame, scrapes, paces)
    frame = frame.join(_of_sources(paces, codes), on="source", how="left", maintain_order="left")
    frame = frame.with_columns(pl.col("interval_ms").fill_null(DEFAULT_SCRAPE_MS))
    of_gpu = frame.filter(pl.col("gpu") >= 0)
    device = {DEVICE_PREFIX + name: value for name, value in lake_columns(read.exporter, metrics, "device").items()}
    given = {GIVEN_PREFIX + name: value for name, value in lake_columns(read.exporter, metrics, "given").items()}
    event = lake_columns(read.exporter, metrics, "event")
    gpus = of_gpu.select(*_ROW, **lake_columns(read.exporter, metrics, "gpu"), **device, **given, **event)
    hosts = frame.filter(pl.col("gpu") < 0).select(*_ROW, **lake_columns(read.exporter, metrics, "host"))
    return ExporterRows(read.exporter, paces, gpus, hosts, repeated)


def _without_repeats(frame: pl.DataFrame, scrapes: pl.DataFrame, paces: Paces) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows without those of repeated readings, and the number of these for each host."""
    slow = [code for code, pace in paces.by_source.items() if paces.reading_ms(code) > pace.scrape_ms]
    if not slow:
        return frame, frame.clear().group_by("host").len()
    of_slow = pl.col("source").is_in(pl.Series(slow, dtype=pl.Int64).implode())
    kept = new_readings(scrapes.filter(of_slow), paces).with_columns(new=pl.lit(value=True))
    marked = frame.join(kept, on=["source", "time_ms"], how="left", maintain_order="left")
    again = of_slow & pl.col("new").is_null() & ~pl.col("ended")
    return marked.filter(~again).drop("new"), marked.filter(again).group_by("host").len()


def _of_sources(paces: Paces, codes: UnitCodes) -> pl.DataFrame:
    """Return each source's interval, and the shares of it that averages cover: source, interval_ms, the coverages.

    `average_coverage` is for averages over the exporter's interval, `scrape_coverage` for averages since the last
    scrape. Where several servers scrape one page, each scrape restarts the means of the others.
    """
    pages = Counter(source[:_PAGE] for source in codes.sources)
    alone = {code: 1.0 if pages[codes.sources[code][:_PAGE]] == 1 else None for code in paces.by_source}
    rows = [(code, paces.reading_ms(code), paces.average_coverage(code), alone[code]) for code in paces.by_source]
    intervals = {"source": pl.Int64, "interval_ms": pl.Int64}
    return pl.DataFrame(
        rows, {**intervals, "average_coverage": pl.Float64, "scrape_coverage": pl.Float64}, orient="row"
    )
