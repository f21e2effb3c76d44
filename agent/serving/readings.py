"""Readings of each model from one answer of a server, and rates from two answers.

Metrics in Prometheus' text format and OpenMetrics are parsed block by block as they arrive. Only the requested samples
are kept, because an answer has up to 4 MiB, of which a few dozen lines matter.

The supported servers are data in `fallow.serving_engines`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.http_client import UnusableError
from fallow.serving_engines import TOTAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from fallow.serving_engines import Engine, EngineMetric, Metric

_LABELS = r'(?:[^"}]|"(?:[^"\\]|\\.)*")*'
_SAMPLE = re.compile(rf"([^\s{{]+)\s*(?:\{{({_LABELS})\}})?\s*(\S+)(?:\s+[-+.\deE]+)?\s*(?:#.*)?")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_VALUE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?inf(inity)?|nan", re.IGNORECASE | re.ASCII)

_MOST_SAMPLES = 20_000
_LONGEST_LINE_BYTES = 2**16


@dataclass(frozen=True)
class Sample:
    name: str
    """Name of the metric without `_total`, which only some clients append to a counter's name."""
    labels: tuple[tuple[str, str], ...]
    """Labels, sorted by name."""
    value: float | None
    """None where the server reports NaN or infinity."""

    def label(self, name: str) -> str:
        """Return the label's value; empty without the label, which the format treats as the same."""
        return dict(self.labels).get(name, "")


class Exposition:
    """The parser of one answer of a server.

    Any method may raise UnusableError for text in another format: an unreadable sample's share in a sum is unknown.
    """

    def __init__(self, names: Collection[str], prefixes: Iterable[str]) -> None:
        """`names`: metrics to keep, without `_total`; `prefixes`: prefixes of metric names to report in `seen`."""
        self._names = frozenset(names)
        self._wanted = tuple(name.encode() for name in sorted(self._names))
        self._prefixes = tuple(prefix.encode() for prefix in prefixes)
        self._unread = b""
        self.samples: list[Sample] = []
        self.seen: set[str] = set()
        """The prefixes that occurred in a metric's name."""

    def feed(self, block: bytes) -> None:
        text = self._unread + block
        end = text.rfind(b"\n") + 1
        self._unread = text[end:]
        if len(self._unread) > _LONGEST_LINE_BYTES:
            raise UnusableError("its metrics are not lines of text")
        self._read(text[:end])

    def finish(self) -> None:
        text, self._unread = self._unread, b""
        self._read(text)

    def _read(self, text: bytes) -> None:
        for line in text.split(b"\n"):
            if line.startswith(self._prefixes):
                self.seen.update(prefix.decode() for prefix in self._prefixes if line.startswith(prefix))
            if line.startswith(self._wanted):
                self._keep(line)

    def _keep(self, line: bytes) -> None:
        name = re.split(rb"[\s{]", line, maxsplit=1)[0].decode("utf-8", "replace").removesuffix(TOTAL)
        if name not in self._names:  # a longer name that begins with a wanted name
            return
        if len(self.samples) >= _MOST_SAMPLES:
            raise UnusableError(f"it has more than {_MOST_SAMPLES} series")
        match = _SAMPLE.fullmatch(line.decode("utf-8", "replace"))
        if match is None or not _VALUE.fullmatch(match[3]):
            raise UnusableError(f"its metric {name} cannot be read")
        value = float(match[3])
        self.samples.append(Sample(name, _labels(match[2] or "", name), value if math.isfinite(value) else None))


def _labels(text: str, name: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text) and not text[position:].isspace():
        match = _LABEL.match(text, position)
        if match is None:
            raise UnusableError(f"its metric {name} cannot be read")
        found[match[1]] = _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        position = match.end()
    return tuple(sorted(found.items()))


Series = tuple[tuple[str, str], ...]
Values = dict[Series, float | None]
_NAME = "__name__"  # as Prometheus itself treats the name, as a label


@dataclass(frozen=True)
class Reading:
    model: str | None
    levels: Mapping[str, float | None]
    """By column."""
    counters: Mapping[str, tuple[Values, ...]]
    """By column each series' value, so that a sum hides no series that restarts at 0; of a mean also its divisor's."""


def read(engine: Engine, samples: Iterable[Sample]) -> list[Reading]:
    """Return a reading per model; one without name and values where a recognised server reports no model."""
    by_model: defaultdict[str | None, list[Sample]] = defaultdict(list)
    for sample in samples:
        if not any(sample.label(part) for part in engine.parts):
            by_model[engine.model(sample.label)].append(sample)
    if not by_model:
        by_model[None] = []
    return [
        Reading(
            model,
            {quantity.column: _level(engine, quantity, own) for quantity in engine.levels},
            {quantity.column: _counts(engine, quantity, own) for quantity in engine.counters},
        )
        for model, own in sorted(by_model.items(), key=lambda item: item[0] or "")
    ]


def rates(before: Reading | None, now: Reading, elapsed_s: float) -> dict[str, float | None]:
    """Return by column the counters' rise per second or per rise of the divisor; null if unknown or after a restart."""
    known: Mapping[str, tuple[Values, ...]] = {} if before is None else before.counters
    return {column: _rate(known.get(column, ()), counts, elapsed_s) for column, counts in now.counters.items()}


def _rate(before: tuple[Values, ...], now: tuple[Values, ...], elapsed_s: float) -> float | None:
    increases = [_increase(*each) for each in zip(before, now, strict=False)]
    known = [increase for increase in increases if increase is not None]
    if not known or len(known) < len(now) or elapsed_s <= 0:
        return None
    over = known[1] if now[1:] else elapsed_s
    return round(known[0] / over, 3) if over else None


def _increase(before: Values, now: Values) -> float | None:
    if not before or not now or before.keys() - now.keys() or _names(before) != _names(now):
        return None
    increase = 0.0
    for series, value in now.items():
        earlier = before.get(series, 0.0)  # a series appears with its first count
        if value is None or earlier is None or value < earlier:
            return None
        increase += value - earlier
    return increase


def _names(values: Values) -> frozenset[str]:
    return frozenset(dict(series)[_NAME] for series in values)


def _level(engine: Engine, quantity: EngineMetric, samples: Sequence[Sample]) -> float | None:
    """Return the sum or mean over the model's series; null where a series is unknown or the result is impossible."""
    found: Values = next((each for source in quantity.sources if (each := _values(engine, source, samples))), {})
    values = found.values()
    known = [value for value in values if value is not None and value >= 0]
    if not known or len(known) != len(values):
        return None
    if not quantity.mean:
        return round(sum(known), 3)
    return round(sum(known) / len(known), 4) if max(known) <= 1 else None


def _counts(engine: Engine, quantity: EngineMetric, samples: Sequence[Sample]) -> tuple[Values, ...]:
    """Return the values of the first source that the server has, and those of its divisor."""
    for source in quantity.sources:
        found = tuple(_series(part, samples, engine.copies) for part in source.parts)
        if found[0]:
            return found
    return ({},)


def _values(engine: Engine, source: Metric, samples: Sequence[Sample]) -> Values:
    if source.over is None:
        return _series(source, samples, engine.copies)
    dropped = (*engine.copies, source.label, source.over.label)
    wholes = _series(source.over, samples, dropped)
    return {key: _ratio(part, wholes.get(key)) for key, part in _series(source, samples, dropped).items()}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _series(metric: Metric, samples: Sequence[Sample], dropped: Collection[str]) -> Values:
    """Return the metric's values by their labels without the dropped ones; of equal labels the largest value."""
    found: Values = {}
    for sample in samples:
        if not metric.takes(sample.name, dict(sample.labels)):
            continue
        key = ((_NAME, sample.name), *((name, value) for name, value in sample.labels if name not in dropped))
        other = found.get(key, sample.value)
        found[key] = None if other is None or sample.value is None else max(other, sample.value)
    return found
