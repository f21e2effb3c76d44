"""What each series is about: a GPU, a MIG instance or a host as one source tells of it, and which of the exporter's metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from analytics.mig import MIG_PREFIX
from analytics.scraped.mapping.mapped_series import MappedSeries, mapped_series, target_of
from analytics.scraped.mapping.model import Exporter, MappedMetric
from analytics.scraped.mapping.series_labels import GpuLabels, gpu_of, holder_of, host_of, renaming_targets
from analytics.scraped.rows.row_settings import Source
from analytics.scraped.samples import Labels

_REPLICAS = ("replica", "prometheus_replica", "__replica__", "prometheus", "monitor", "receive_replica")
"""Labels by which servers that scrape the same targets tell themselves apart."""

_OF_THE_CARD = frozenset((
    "power_w", "energy_mj", "temperature_c", "mem_temperature_c", "sm_clock_mhz", "mem_clock_mhz", "throttle_reasons",
    "throttled_power_cap_ms", "throttled_sync_boost_ms", "throttled_sw_thermal_ms", "throttled_hw_thermal_ms",
    "throttled_power_brake_ms", "power_limit_w", "code",
))  # fmt: skip
"""Columns that a MIG instance does not have: a series of an instance repeats what its whole GPU says."""

_UUIDS = ("GPU-", MIG_PREFIX)

_LONGEST_HOST = 200
"""Bytes of its name in a path of the lake, whose folders may have 255: one that cannot be written would hold up all others."""


@dataclass(frozen=True)
class ScrapedUnit:
    """One thing that a source tells of; `gpu` is empty for the host itself, `parent` for what is no MIG instance."""

    source: Source
    host: str
    gpu: str
    parent: str = ""


@dataclass(frozen=True)
class MetricPart:
    """One series as one metric (a position in the exporter's) of a unit.

    `part` and `per` are codes of the labels that a sum goes over and is divided by; `held`: the series names who holds the GPU.
    """

    series: int
    metric: int
    unit: int
    part: int
    per: int
    held: bool


@dataclass
class ScrapedUnits:
    """The units in the order of their codes; `parts` are by the name of the exporter, `unit_of` and `holders` by the number of the series."""

    exporters: dict[str, Exporter] = field(default_factory=dict)
    units: dict[ScrapedUnit, int] = field(default_factory=dict)
    parts: dict[str, list[MetricPart]] = field(default_factory=lambda: defaultdict(list))
    unit_of: dict[int, int] = field(default_factory=dict)
    holders: dict[int, dict[str, str]] = field(default_factory=dict)
    nameless: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Series of known metrics that do not say what they are of: by the exporter's title and what is missing, host or GPU."""

    positions: dict[int, int] = field(default_factory=dict)
    """Where each metric, by its identity, stands among its exporter's."""

    words: dict[object, int] = field(default_factory=dict)
    """Values of the labels that tell parts of a sum apart."""

    def word(self, value: object) -> int:
        return self.words.setdefault(value, len(self.words))

    def code(self, unit: ScrapedUnit) -> int:
        return self.units.setdefault(unit, len(self.units))


def scraped_units(labels: Sequence[Labels], exporters: Sequence[Exporter]) -> ScrapedUnits:
    """The units that the labels of some series tell of."""
    mapped = mapped_series(labels, exporters)
    told = [
        (number, each, gpu_of(labels[number], each.exporter), host_of(labels[number], each.exporter))
        for number, each in enumerate(mapped)
        if each is not None
    ]
    # an exporter that only counts GPUs names them by what another one on the host calls that position
    uuids = {(host, gpu.index): gpu.uuid for _, _, gpu, host in told if gpu.uuid and gpu.index and not gpu.parent}
    found, renaming = ScrapedUnits(), renaming_targets(labels)
    for number, series, gpu, host in told:
        exporter = series.exporter
        if not _can_be_kept(host):
            found.nameless[exporter.title, "host that a lake can have"] += 1
            continue
        if exporter.name not in found.exporters:
            found.exporters[exporter.name] = exporter
            found.positions |= {id(metric): position for position, metric in enumerate(exporter.metrics)}
        unit = _unit(labels[number], exporter, gpu, host, uuids)
        found.unit_of[number] = found.code(unit)
        if unit.gpu and (holder := holder_of(labels[number], exporter, renaming)):
            found.holders[number] = holder
        found.parts[exporter.name] += _parts(number, labels[number], series, unit, found)
    return found


def _can_be_kept(host: str) -> bool:
    return bool(host) and "/" not in host and host.isprintable() and len(quote(host)) <= _LONGEST_HOST


def source_of(labels: Labels, exporter: Exporter, host: str) -> Source:
    """Which page a series is of, and which of several servers read it. Sites that give all targets one instance have a page for each host."""
    return (exporter.name, *target_of(labels), host, *(labels.get(name, "") for name in _REPLICAS))


def _unit(
    labels: Labels, exporter: Exporter, gpu: GpuLabels, host: str, uuids: Mapping[tuple[str, str], str]
) -> ScrapedUnit:
    """A MIG instance whose UUID no label has is named as drivers before 470 named it: by its GPU and its number there."""
    source = source_of(labels, exporter, host)
    is_instance = bool(gpu.mig_instance or gpu.parent)
    card = (gpu.parent if is_instance else gpu.uuid) or uuids.get((host, gpu.index), gpu.index)
    if not is_instance:
        return ScrapedUnit(source, host, _scoped(card, host) if card else "")
    parent = _scoped(card, host)
    own = gpu.uuid if gpu.uuid.startswith(MIG_PREFIX) else f"{MIG_PREFIX}{parent}/{gpu.mig_instance}"
    return ScrapedUnit(source, host, own, parent)


def _scoped(name: str, host: str) -> str:
    """The id as the lake has it: a UUID as it is, any other behind its host."""
    return name if name.startswith(_UUIDS) else f"{host}/{name}"


def _parts(
    number: int, labels: Labels, series: MappedSeries, unit: ScrapedUnit, found: ScrapedUnits
) -> Iterator[MetricPart]:
    for metric in series.metrics:
        about = _about(unit, metric)
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
                number in found.holders,
            )


def _about(unit: ScrapedUnit, metric: MappedMetric) -> ScrapedUnit | None:
    """What the metric tells of: the series' own unit, its whole GPU, or its host; None where it names no GPU."""
    if metric.table == "host":
        return ScrapedUnit(unit.source, unit.host, "")
    if not unit.gpu:
        return None if metric.table else unit
    if unit.parent and metric.column in _OF_THE_CARD:
        return ScrapedUnit(unit.source, unit.host, unit.parent)
    return unit
