"""The unit of each series, and one exporter's samples side by side: a row per unit and scrape, a column per metric.

All series of one scrape have one timestamp, so unit and time identify the samples that belong together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.mapping.model import Exporter, MappedMetric
from analytics.mig import MIG_PREFIX
from analytics.scraped.hardware_labels import UUIDS
from analytics.scraped.rows.model import Source
from analytics.scraped.samples import Labels
from analytics.scraped.series_labels import (
    GpuLabels,
    MappedSeries,
    gpu_of,
    host_of,
    mapped_series,
    renaming_targets,
    replicas_of,
    target_of,
    user_of,
)

_OF_THE_CARD = frozenset(
    (
        "power_w",
        "energy_mj",
        "temperature_c",
        "mem_temperature_c",
        "sm_clock_mhz",
        "mem_clock_mhz",
        "throttle_reasons",
        "throttled_power_cap_ms",
        "throttled_sync_boost_ms",
        "throttled_sw_thermal_ms",
        "throttled_hw_thermal_ms",
        "throttled_power_brake_ms",
        "power_limit_w",
        "code",
    )
)
"""Columns that a MIG instance does not have: a series of an instance repeats the value of its whole GPU."""

_LONGEST_HOST = 200
"""Most bytes of a host's name in the lake's paths, whose folders may have 255: an unwritable name delays all others."""


@dataclass(frozen=True)
class ScrapedUnit:
    source: Source
    host: str
    gpu: str
    """Empty for the host itself."""
    parent: str = ""
    """Empty for a unit that is not a MIG instance."""


@dataclass(frozen=True)
class MetricPart:
    """One series as one metric of a unit."""

    series: int
    metric: int
    """The position of the metric in the exporter's."""
    unit: int
    part: int
    """Code of the labels over which a sum goes."""
    per: int
    """Code of the labels by which the sum is divided."""
    held: bool
    """The series names a user of the GPU."""


@dataclass
class ScrapedUnits:
    """The units in the order of their codes."""

    exporters: dict[str, Exporter] = field(default_factory=dict)
    units: dict[ScrapedUnit, int] = field(default_factory=dict)
    parts: dict[str, list[MetricPart]] = field(default_factory=lambda: defaultdict(list))
    """By the name of the exporter."""
    unit_of: dict[int, int] = field(default_factory=dict)
    """By the number of the series."""
    users: dict[int, dict[str, str]] = field(default_factory=dict)
    """By the number of the series."""
    nameless: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Series of known metrics without a host or GPU: by the exporter's title and the missing one of the two."""

    positions: dict[int, int] = field(default_factory=dict)
    """The position of each metric, by its identity, among its exporter's."""

    words: dict[object, int] = field(default_factory=dict)
    """Values of the labels that distinguish the parts of a sum."""

    def word(self, value: object) -> int:
        return self.words.setdefault(value, len(self.words))

    def code(self, unit: ScrapedUnit) -> int:
        return self.units.setdefault(unit, len(self.units))


def scraped_units(labels: Sequence[Labels], exporters: Sequence[Exporter]) -> ScrapedUnits:
    mapped = mapped_series(labels, exporters)
    identified = [
        (number, each, gpu_of(labels[number], each.exporter), host_of(labels[number], each.exporter))
        for number, each in enumerate(mapped)
        if each is not None
    ]
    # an exporter that only counts GPUs gets their names from another exporter on the host, by position
    uuids = {(host, gpu.index): gpu.uuid for _, _, gpu, host in identified if gpu.uuid and gpu.index and not gpu.parent}
    found, renaming = ScrapedUnits(), renaming_targets(labels)
    for number, series, gpu, host in identified:
        exporter = series.exporter
        if not _can_be_kept(host):
            found.nameless[exporter.title, "host that a lake can have"] += 1
            continue
        if exporter.name not in found.exporters:
            found.exporters[exporter.name] = exporter
            found.positions |= {id(metric): position for position, metric in enumerate(exporter.metrics)}
        unit = _unit(labels[number], exporter, gpu, host, uuids)
        found.unit_of[number] = found.code(unit)
        if unit.gpu and (user := user_of(labels[number], exporter, renaming)):
            found.users[number] = user
        found.parts[exporter.name] += _parts(number, labels[number], series, unit, found)
    return found


def _can_be_kept(host: str) -> bool:
    return bool(host) and "/" not in host and host.isprintable() and len(quote(host)) <= _LONGEST_HOST


def source_of(labels: Labels, exporter: Exporter, host: str) -> Source:
    """Return the source of a series: exporter, target, host, and the replica of the metrics server that scraped it.

    The host is included because some sites give all targets the same instance label.
    """
    return (exporter.name, *target_of(labels), host, *replicas_of(labels))


def _unit(
    labels: Labels, exporter: Exporter, gpu: GpuLabels, host: str, uuids: Mapping[tuple[str, str], str]
) -> ScrapedUnit:
    """Return the unit. A MIG instance without a UUID label is named by GPU and number, as drivers before 470 did."""
    source = source_of(labels, exporter, host)
    is_instance = bool(gpu.mig_instance or gpu.parent)
    card = (gpu.parent if is_instance else gpu.uuid) or uuids.get((host, gpu.index), gpu.index)
    if not is_instance:
        return ScrapedUnit(source, host, _scoped_id(card, host) if card else "")
    parent = _scoped_id(card, host)
    own = gpu.uuid if gpu.uuid.startswith(MIG_PREFIX) else f"{MIG_PREFIX}{parent}/{gpu.mig_instance}"
    return ScrapedUnit(source, host, own, parent)


def _scoped_id(name: str, host: str) -> str:
    """Return the id as in the lake: a UUID unchanged, any other prefixed with its host."""
    return name if name.startswith(UUIDS) else f"{host}/{name}"


def _parts(
    number: int, labels: Labels, series: MappedSeries, unit: ScrapedUnit, found: ScrapedUnits
) -> Iterator[MetricPart]:
    for metric in series.metrics:
        about = _described_unit(unit, metric)
        if about is None:
            found.nameless[series.exporter.title, "GPU"] += 1
        else:
            part = tuple(labels.get(name, "") for name in metric.sum_over)
            yield MetricPart(
                number,
                found.positions[id(metric)],
                found.code(about),
                found.word(part),
                found.word(labels.get(metric.per, "")),
                number in found.users,
            )


def _described_unit(unit: ScrapedUnit, metric: MappedMetric) -> ScrapedUnit | None:
    """Return the unit that the metric describes: the series' own, its whole GPU, or its host; None without a GPU."""
    if metric.table == "host":
        return ScrapedUnit(unit.source, unit.host, "")
    if not unit.gpu:
        return None if metric.table else unit
    if unit.parent and metric.column in _OF_THE_CARD:
        return ScrapedUnit(unit.source, unit.host, unit.parent)
    return unit


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

TIME_BITS = 42
"""Milliseconds of 139 years."""


def keys_of(code: Ints, time_ms: Ints) -> Ints:
    """Return a unit and a moment as one number, sorted by unit and time."""
    return code << TIME_BITS | time_ms


@dataclass(frozen=True)
class SampleArrays:
    """Samples as arrays: series `n` lies from `first[n]` up to `first[n + 1]`. NaN: no value, or the series ended."""

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
        """Return the positions of the samples of some series, one series after the other, and the number for each."""
        counts = self.first[numbers + 1] - self.first[numbers]
        before = np.cumsum(counts) - counts
        return np.repeat(self.first[numbers] - before, counts) + np.arange(counts.sum()), counts


@dataclass(frozen=True)
class RefusedSamples:
    """Samples that make no value: by the code of their unit the number per column, and the reason."""

    reason: str
    column: str
    unit: Ints


@dataclass(frozen=True)
class MetricFrame:
    """Samples of one exporter side by side, sorted by unit and time, each once.

    `frame` has unit, time_ms, ended (a series ended at that moment and no other value came) and the metrics by
    position.
    """

    exporter: Exporter
    frame: pl.DataFrame
    refused: tuple[RefusedSamples, ...]


def metric_frame(samples: SampleArrays, exporter: Exporter, parts: Sequence[MetricPart]) -> MetricFrame:
    read = _Read(samples, exporter)
    used = {name for combined in exporter.combined for name in (*combined.add, *combined.subtract)}
    by_metric = sorted(parts, key=lambda each: (each.metric, each.unit, each.part, each.series))
    columns: dict[int, tuple[Ints, Floats]] = {}
    for number, own in groupby(by_metric, key=lambda each: each.metric):
        metric = exporter.metrics[number]
        if metric.table in _TABLES or metric.metric in used:
            columns[number] = read.values(metric, list(own))
    moments = _axis([key for key, _ in columns.values()])
    axis = _axis([moments, *read.ends])
    ended = np.ones(len(axis), bool)
    ended[np.searchsorted(axis, moments)] = False
    frame: dict[str, NDArray[np.generic]] = {
        "unit": axis >> TIME_BITS,
        "time_ms": axis & (1 << TIME_BITS) - 1,
        "ended": ended,
    }
    for number, (key, values) in columns.items():
        frame[str(number)] = _placed_values(axis, key, values)
    return MetricFrame(
        exporter, pl.DataFrame(frame).with_columns(pl.col(map(str, columns)).fill_nan(None)), tuple(read.refused)
    )


_TABLES = ("gpu", "device", "host", "event", "given")


class _Read:
    """Reads metric after metric; `ends` are keys of staleness markers, `refused` samples that make no value."""

    def __init__(self, samples: SampleArrays, exporter: Exporter) -> None:
        self._samples, self._exporter = samples, exporter
        self.ends: list[Ints] = []
        self.refused: list[RefusedSamples] = []

    def values(self, metric: MappedMetric, parts: Sequence[MetricPart]) -> tuple[Ints, Floats]:
        """Return keys, rising, and the metric's value at each."""
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
                self._refuse("the exporter's value for unknown", metric, unit[blank])
                good &= ~blank
        if not good.all():
            key, values, counts = key[good], values[good], _good_counts(good, counts)
        if metric.sum_over or metric.kind == "count":
            labels = [np.repeat(np.array([getattr(part, name) for part in parts]), counts) for name in ("part", "per")]
            return _summed_values(metric, key, values, *labels)
        if (key[1:] > key[:-1]).all():
            return key, values
        return self._of_the_card(metric, key, values, np.repeat(np.array([part.held for part in parts]), counts))

    def _of_the_card(self, metric: MappedMetric, key: Ints, values: Floats, held: Mask) -> tuple[Ints, Floats]:
        """Return one value per key, the largest if there are several.

        A card that several pods share occurs once for each of them, and may occur once for itself. A series without a
        user is the card's, and those beside it are of the pods alone (dcgm-exporter, --kubernetes-virtual-gpus);
        without such a series they are copies of the card's value.
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


def _good_counts(good: Mask, counts: Ints) -> Ints:
    """Return how many good samples each group has, for groups of these sizes."""
    return np.add.reduceat(np.append(good, False).astype(np.int64), np.cumsum(counts) - counts) * (counts > 0)


def _summed_values(metric: MappedMetric, key: Ints, values: Floats, part: Ints, per: Ints) -> tuple[Ints, Floats]:
    """Return the sum of each key's parts, where it has as many as its unit ever has; for a `count` their number."""
    found = pl.DataFrame({"key": key, "part": part, "per": per, "value": values})
    once = found.group_by("key", "part", "per").agg(pl.col("value").max())
    number = pl.col("per").n_unique()
    value = number if metric.kind == "count" else pl.col("value").sum() / (number if metric.per else 1)
    sums = once.group_by("key").agg(value.cast(pl.Float64).alias("value"), pl.len().alias("parts"))
    sums = sums.filter(pl.col("parts") == pl.col("parts").max().over(pl.col("key") // (1 << TIME_BITS))).sort("key")
    return sums["key"].to_numpy(), sums["value"].to_numpy()


def _axis(keys: Sequence[Ints]) -> Ints:
    """Return all keys, rising, each once."""
    axis = keys[0] if keys else np.zeros(0, np.int64)
    for key in keys:
        if not np.array_equal(key, axis):
            at = np.minimum(np.searchsorted(axis, key), max(len(axis) - 1, 0))
            missing = key[axis[at] != key] if len(axis) else key
            axis = np.union1d(axis, missing) if len(missing) else axis
    return axis


def _placed_values(axis: Ints, key: Ints, values: Floats) -> Floats:
    if np.array_equal(axis, key):
        return values
    found = np.full(len(axis), np.nan)
    found[np.searchsorted(axis, key)] = values
    return found
