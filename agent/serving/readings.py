"""What one answer of a server says about each of its models, and rates from two answers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.serving.engines import ENGINES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from agent.serving.engines import Engine, EngineMetric, Metric, MetricSource
    from agent.serving.exposition import Sample

Series = tuple[tuple[str, str], ...]
Values = dict[Series, float | None]
_NAME = "__name__"  # as Prometheus itself files it among the labels


@dataclass(frozen=True)
class Reading:
    model: str | None
    levels: Mapping[str, float | None]
    """By column."""
    counters: Mapping[str, Values]
    """By column the value of each series, so that one of them that begins anew is not hidden in a sum."""


def recognise(prefixes: Collection[str]) -> Engine | None:
    return next((engine for engine in ENGINES if engine.prefix in prefixes), None)


def wanted_names() -> frozenset[str]:
    sources = [source for engine in ENGINES for quantity in engine.quantities() for source in quantity.sources]
    return frozenset(metric.name for source in sources for metric in (source.metric, source.over) if metric is not None)


def read(engine: Engine, samples: Iterable[Sample]) -> list[Reading]:
    """A reading for each model; one without a model's name and values where the server is recognised and says nothing."""
    by_model: defaultdict[str | None, list[Sample]] = defaultdict(list)
    for sample in samples:
        if not any(sample.label(part) for part in engine.parts):
            by_model[_model(engine, sample)].append(sample)
    if not by_model:
        by_model[None] = []
    return [
        Reading(
            model,
            {quantity.column: _level(engine, quantity, own) for quantity in engine.levels},
            {quantity.column: _first(engine, quantity, own) for quantity in engine.counters},
        )
        for model, own in sorted(by_model.items(), key=lambda item: item[0] or "")
    ]


def rates(before: Reading | None, now: Reading, elapsed_s: float) -> dict[str, float | None]:
    """By column the counters' increase per second; null where either is unknown or the server has begun anew."""
    known: Mapping[str, Values] = {} if before is None else before.counters
    return {column: _rate(known.get(column, {}), values, elapsed_s) for column, values in now.counters.items()}


def _rate(before: Values, now: Values, elapsed_s: float) -> float | None:
    if not before or not now or elapsed_s <= 0 or before.keys() - now.keys() or _names(before) != _names(now):
        return None
    increase = 0.0
    for series, value in now.items():
        earlier = before.get(series, 0.0)  # a series comes to be with its first count
        if value is None or earlier is None or value < earlier:
            return None
        increase += value - earlier
    return round(increase / elapsed_s, 3)


def _names(values: Values) -> frozenset[str]:
    return frozenset(dict(series)[_NAME] for series in values)


def _model(engine: Engine, sample: Sample) -> str | None:
    return ":".join(name for label in engine.model_labels if (name := sample.label(label))) or None


def _level(engine: Engine, quantity: EngineMetric, samples: Sequence[Sample]) -> float | None:
    """The sum or mean over the model's series; null where one of them is unknown or no share or count could be so."""
    values = _first(engine, quantity, samples).values()
    known = [value for value in values if value is not None and value >= 0]
    if not known or len(known) != len(values):
        return None
    if not quantity.mean:
        return round(sum(known), 3)
    return round(sum(known) / len(known), 4) if max(known) <= 1 else None


def _first(engine: Engine, quantity: EngineMetric, samples: Sequence[Sample]) -> Values:
    return next((values for source in quantity.sources if (values := _values(engine, source, samples))), {})


def _values(engine: Engine, source: MetricSource, samples: Sequence[Sample]) -> Values:
    if source.over is None:
        return _series(source.metric, samples, engine.copies)
    dropped = (*engine.copies, *(label for metric in (source.metric, source.over) for label, _ in metric.where))
    wholes = _series(source.over, samples, dropped)
    return {key: _ratio(part, wholes.get(key)) for key, part in _series(source.metric, samples, dropped).items()}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _series(metric: Metric, samples: Sequence[Sample], dropped: Collection[str]) -> Values:
    """The metric's values by their labels without the dropped ones; of those that become alike the largest."""
    found: Values = {}
    for sample in samples:
        if sample.name != metric.name or any(sample.label(label) not in values for label, values in metric.where):
            continue
        key = ((_NAME, sample.name), *((name, value) for name, value in sample.labels if name not in dropped))
        other = found.get(key, sample.value)
        found[key] = None if other is None or sample.value is None else max(other, sample.value)
    return found
