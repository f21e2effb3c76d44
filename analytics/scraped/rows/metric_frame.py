"""The samples of one exporter side by side: a row for each unit and scrape, a column for each metric.

All series of one scrape have one timestamp, so unit and time say which samples belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.scraped.mapping.model import Exporter, MappedMetric
from analytics.scraped.rows.scraped_units import MetricPart

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

TIME_BITS = 42
"""Milliseconds of 139 years."""


def keys_of(code: Ints, time_ms: Ints) -> Ints:
    """A thing and a moment in one number, by thing and time."""
    return code << TIME_BITS | time_ms


@dataclass(frozen=True)
class SampleArrays:
    """Samples as arrays; those of series `n` lie from `first[n]` up to `first[n + 1]`. NaN where nothing was said or a series ended."""

    first: Ints
    time_ms: Ints
    value: Floats
    ended: Mask

    @classmethod
    def of(cls, frame: pl.DataFrame, series: int) -> SampleArrays:
        first = np.searchsorted(frame["series"].to_numpy(), np.arange(series + 1))
        values = frame["value"]
        return cls(first.astype(np.int64), frame["time_ms"].to_numpy(), values.to_numpy(), values.is_null().to_numpy())

    def of_series(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Where the samples of some series lie, one series after the other, and how many each has."""
        counts = self.first[numbers + 1] - self.first[numbers]
        before = np.cumsum(counts) - counts
        return np.repeat(self.first[numbers] - before, counts) + np.arange(counts.sum()), counts


@dataclass(frozen=True)
class RefusedSamples:
    """Samples that make no value: by the code of their unit how many of which column, and why."""

    reason: str
    column: str
    unit: Ints


@dataclass(frozen=True)
class MetricFrame:
    """`frame` has unit, time_ms, ended (a series ended at that moment and nothing else was said) and the metrics by position.

    Sorted by unit and time, each once.
    """

    exporter: Exporter
    frame: pl.DataFrame
    refused: tuple[RefusedSamples, ...]


def metric_frame(samples: SampleArrays, exporter: Exporter, parts: Sequence[MetricPart]) -> MetricFrame:
    """The samples of one exporter."""
    read = _Read(samples, exporter)
    used = {name for combined in exporter.combined for name in (*combined.add, *combined.subtract)}
    by_metric = sorted(parts, key=lambda each: (each.metric, each.unit, each.part, each.series))
    columns: dict[int, tuple[Ints, Floats]] = {}
    for number, own in groupby(by_metric, key=lambda each: each.metric):
        metric = exporter.metrics[number]
        if metric.table in _TABLES or metric.metric in used:
            columns[number] = read.values(metric, list(own))
    said = _axis([key for key, _ in columns.values()])
    axis = _axis([said, *read.ends])
    ended = np.ones(len(axis), bool)
    ended[np.searchsorted(axis, said)] = False
    frame: dict[str, NDArray[np.generic]] = {
        "unit": axis >> TIME_BITS,
        "time_ms": axis & (1 << TIME_BITS) - 1,
        "ended": ended,
    }
    for number, (key, values) in columns.items():
        frame[str(number)] = _placed(axis, key, values)
    return MetricFrame(
        exporter, pl.DataFrame(frame).with_columns(pl.col(map(str, columns)).fill_nan(None)), tuple(read.refused)
    )


_TABLES = ("gpu", "device", "host", "event", "given")


class _Read:
    """Reads metric after metric; `ends` are keys of staleness markers, `refused` what makes no value."""

    def __init__(self, samples: SampleArrays, exporter: Exporter) -> None:
        self._samples, self._exporter = samples, exporter
        self.ends: list[Ints] = []
        self.refused: list[RefusedSamples] = []

    def values(self, metric: MappedMetric, parts: Sequence[MetricPart]) -> tuple[Ints, Floats]:
        """Keys, rising, and the metric's value at each."""
        at, counts = self._samples.of_series(np.array([part.series for part in parts], np.int64))
        unit = np.repeat(np.array([part.unit for part in parts], np.int64), counts)
        key = keys_of(unit, self._samples.time_ms[at])
        values = self._samples.value[at]
        good = ~np.isnan(values)
        if not good.all():
            ended = self._samples.ended[at]
            self.ends.append(np.unique(key[ended]))
            self._refuse("NaN", metric, unit[~good & ~ended])
        for low, high in self._exporter.unknown:
            blank = (values >= low) & (values <= high)
            if blank.any():
                self._refuse("the exporter's word for not known", metric, unit[blank])
                good &= ~blank
        if not good.all():
            key, values, counts = key[good], values[good], _kept(good, counts)
        if metric.sum_over or metric.kind == "count":
            labels = [np.repeat(np.array([getattr(part, name) for part in parts]), counts) for name in ("part", "per")]
            return _summed(metric, key, values, *labels)
        if (key[1:] > key[:-1]).all():
            return key, values
        return self._of_the_card(metric, key, values, np.repeat(np.array([part.held for part in parts]), counts))

    def _of_the_card(self, metric: MappedMetric, key: Ints, values: Floats, held: Mask) -> tuple[Ints, Floats]:
        """One value per key: a card that several pods share is there once for each of them, and may be there once for itself.

        A series of nobody in particular is the card's, and those beside it are of the pods alone (dcgm-exporter,
        --kubernetes-virtual-gpus); without one they are copies of the card's value.
        """
        order = np.lexsort((held, key))
        key, values, held = key[order], values[order], held[order]
        begins = np.append(True, key[1:] != key[:-1])
        counts = held == held[np.flatnonzero(begins)][np.cumsum(begins) - 1]
        key, values = key[counts], values[counts]
        first = np.flatnonzero(begins[counts])
        most = np.maximum.reduceat(values, first)
        differ = most > np.minimum.reduceat(values, first)
        self._refuse(
            "another value of one GPU and scrape: the larger one counts", metric, key[first][differ] >> TIME_BITS
        )
        return key[first], most

    def _refuse(self, reason: str, metric: MappedMetric, units: Ints) -> None:
        if len(units):
            self.refused.append(RefusedSamples(reason, metric.column or metric.metric, units))


def _kept(good: Mask, counts: Ints) -> Ints:
    """How many good ones each of some groups of so many has."""
    return np.add.reduceat(np.append(good, False).astype(np.int64), np.cumsum(counts) - counts) * (counts > 0)


def _summed(metric: MappedMetric, key: Ints, values: Floats, part: Ints, per: Ints) -> tuple[Ints, Floats]:
    """The sum of the parts of each key, where it has as many as its unit ever has; of a `count` their number."""
    found = pl.DataFrame({"key": key, "part": part, "per": per, "value": values})
    once = found.group_by("key", "part", "per").agg(pl.col("value").max())
    number = pl.col("per").n_unique()
    value = number if metric.kind == "count" else pl.col("value").sum() / (number if metric.per else 1)
    sums = once.group_by("key").agg(value.cast(pl.Float64).alias("value"), pl.len().alias("parts"))
    sums = sums.filter(pl.col("parts") == pl.col("parts").max().over(pl.col("key") // (1 << TIME_BITS))).sort("key")
    return sums["key"].to_numpy(), sums["value"].to_numpy()


def _axis(keys: Sequence[Ints]) -> Ints:
    """All keys, rising, each once."""
    axis = keys[0] if keys else np.zeros(0, np.int64)
    for key in keys:
        if not np.array_equal(key, axis):
            at = np.minimum(np.searchsorted(axis, key), max(len(axis) - 1, 0))
            missing = key[axis[at] != key] if len(axis) else key
            axis = np.union1d(axis, missing) if len(missing) else axis
    return axis


def _placed(axis: Ints, key: Ints, values: Floats) -> Floats:
    if np.array_equal(axis, key):
        return values
    found = np.full(len(axis), np.nan)
    found[np.searchsorted(axis, key)] = values
    return found
