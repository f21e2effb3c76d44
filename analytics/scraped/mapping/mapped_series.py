"""Which exporter each series is of, and which columns it fills."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from analytics.scraped.mapping.model import Exporter, MappedMetric
from analytics.scraped.samples import Labels

_TARGET = ("cluster", "job", "instance")


@dataclass(frozen=True)
class MappedSeries:
    """One series of a known exporter; `metrics` is empty where the exporter's own rules leave the series out."""

    exporter: Exporter
    metrics: tuple[MappedMetric, ...]


def target_of(labels: Labels) -> tuple[str, ...]:
    """What was scraped: all series of one target are of one page."""
    return tuple(labels.get(name, "") for name in _TARGET)


def mapped_series(labels: Sequence[Labels], exporters: Sequence[Exporter]) -> list[MappedSeries | None]:
    """One entry for each series, in order; None: no exporter has such a metric.

    Of several exporters that have it, those count that the target's other metrics sign, then the first without a signature.
    """
    names: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for series in labels:
        names[target_of(series)].add(series.get("__name__", ""))
    ranked = {target: _ranked(of_target, exporters) for target, of_target in names.items()}
    return [_mapped(series, ranked[target_of(series)]) for series in labels]


def _ranked(names: set[str], exporters: Sequence[Exporter]) -> list[Exporter]:
    signed = [exporter for exporter in exporters if not names.isdisjoint(exporter.signed_by)]
    return [*signed, *(exporter for exporter in exporters if not exporter.signed_by)]


def _mapped(series: Labels, ranked: list[Exporter]) -> MappedSeries | None:
    for exporter in ranked:
        if found := exporter.by_metric.get(series.get("__name__", "")):
            return MappedSeries(exporter, tuple(mapped for mapped in found if mapped.takes(series)))
    return None
