"""From the metrics of one exporter, side by side, to the columns of the lake's tables."""

from __future__ import annotations

import math
from collections import defaultdict

import polars as pl

from analytics.scraped.mapping.model import Exporter, MappedMetric
from fallow.clock import SECOND_MS

COUNTERS = (
    "energy_mj",
    "throttled_power_cap_ms",
    "throttled_sync_boost_ms",
    "throttled_sw_thermal_ms",
    "throttled_hw_thermal_ms",
    "throttled_power_brake_ms",
)
"""Columns that climb; what climbs and fills any other column is a rate."""

_GAP_INTERVALS = 3
"""What was counted over a longer gap is no rate of a row (the ledger's rule for samples)."""


def lake_columns(exporter: Exporter, known: list[str], table: str) -> dict[str, pl.Expr]:
    """The columns of a table that metrics of the exporter fill, `known` being those that were read, by position.

    The expressions are over a frame of unit, time_ms, interval_ms, average_coverage, scrape_coverage and the metrics. Of the metrics of one
    column the first counts that has a value; a column that no metric has is the sum of others.
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
    """Where the metrics of these names were read; None for one that was not."""
    read = {exporter.metrics[int(position)].metric: position for position in known}
    return [read.get(name) for name in names]


def _value(metric: MappedMetric, read: pl.Expr) -> pl.Expr:
    if metric.kind != "counter" or metric.column in COUNTERS:
        return read * metric.factor
    passed_ms = pl.col("time_ms").diff()
    goes_on = (pl.col("unit").diff() == 0) & (read.diff() >= 0) & (passed_ms <= _GAP_INTERVALS * pl.col("interval_ms"))
    return pl.when(goes_on).then(read.diff() / passed_ms * SECOND_MS * metric.factor)


def _utilization(metrics: list[tuple[MappedMetric, pl.Expr]]) -> dict[str, pl.Expr]:
    """Utilization and its coverage, both by one metric in each row: the first that has a value.

    A value of 0 yields to another one above it: work that one of the two saw was there.
    """
    value, coverage = pl.lit(None, pl.Float64), pl.lit(None, pl.Float64)
    for metric, own in reversed(metrics):
        counts = own.is_not_null() & ~((own == 0) & (value > 0).fill_null(value=False))
        value = pl.when(counts).then(own).otherwise(value)
        coverage = pl.when(counts).then(_coverage(metric)).otherwise(coverage)
    return {"gpu_util_pct": value, "gpu_util_coverage_ratio": coverage}


def _coverage(metric: MappedMetric) -> pl.Expr:
    """The share of its row that a value describes; null where nobody knows it."""
    if metric.kind == "average":
        since_scrape = metric.covers_s is not None and math.isinf(metric.covers_s)
        return pl.col("scrape_coverage" if since_scrape else "average_coverage")
    if metric.covers_s is None:
        return pl.lit(None, pl.Float64)
    return pl.min_horizontal(metric.covers_s * SECOND_MS / pl.col("interval_ms"), 1.0)
