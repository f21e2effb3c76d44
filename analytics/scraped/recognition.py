"""Output of `fallow import prometheus --check`: exporters found, the columns that they fill, and what is missing."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from analytics.contradictions.recorded import ContradictoryTimes
from analytics.language.sentences import PAGE_COLUMNS, count, fitted_lines, wrap
from analytics.mapping.model import GIVEN, Exporter, MappedMetric
from analytics.scraped.samples import Labels
from analytics.scraped.series_labels import (
    MappedSeries,
    gpu_of,
    host_of,
    mapped_series,
    renaming_targets,
    target_of,
    user_of,
)
from fallow.outside_text import json_text, plain
from fallow.schema import SERVING


@dataclass(frozen=True)
class Absence:
    """Information that an exporter may lack; it is present where one of `sources` is.

    `sources` are `table.column`, `given` for any label about the user, or the name of an exporter.
    """

    name: str
    sources: tuple[str, ...]
    without: str
    beside: tuple[str, ...] = ()
    """Reported only for GPUs that have one of these: GPUs without them have a graver absence."""


ABSENCES = (
    Absence("utilization", ("gpu.gpu_util_pct",), "no state is known: all of the time is unknown"),
    Absence(
        "memory in use",
        ("gpu.mem_used_bytes",),
        "held and free cannot be distinguished: a GPU at 0 counts as free, or as reserved where a pod or job has it",
    ),
    Absence("user", ("given",), "no team, user, pod or job has a share of the bill, and no finding names a user"),
    Absence(
        "power",
        ("gpu.power_w", "gpu.energy_mj"),
        "no energy and no cost of it, and nothing confirms that a GPU stayed idle between two scrapes: idle time is a"
        " range",
    ),
    Absence(
        "energy counter",
        ("gpu.energy_mj",),
        "power readings alone confirm that a GPU stayed idle: they miss work in step with the scrapes",
        beside=("gpu.power_w",),
    ),
    Absence(
        "SM activity",
        ("gpu.sm_active_pct",),
        "how much of a busy GPU is used is unknown: work that keeps a few of its SMs busy looks like work that"
        " fills it",
        beside=("gpu.gpu_util_pct",),
    ),
    Absence(
        "size of the memory",
        ("device.mem_total_bytes",),
        "how full a GPU's memory is, and what would fit beside it, is unknown",
    ),
    Absence("model", ("device.model",), "prices and power by model cannot be applied, nor GPUs of a kind compared"),
    Absence(
        "reasons of throttling",
        ("gpu.throttle_reasons", "gpu.throttled_power_cap_ms", "gpu.throttled_hw_thermal_ms"),
        "whether heat or a power cap slows a GPU down is unknown",
    ),
)
"""Absences for each GPU, the gravest first."""

OF_SITES = (
    Absence(
        "hosts", ("host.cpu_util_pct",), "whether GPUs wait for their host's CPUs, memory, disks or network is unknown"
    ),
    Absence(
        "Kubernetes objects",
        ("kube-state-metrics",),
        "the owner of a pod, its queue wait and other requests are unknown; a Slurm site imports sacct instead",
    ),
)
"""Absences for the site as a whole."""


GPU_LIKE = "(?i).*(gpu|dcgm|nvml|nvidia|cuda|rocm|xpu|accelerator).*"
"""Names of metrics that may be of GPUs, to query besides `metric_names`, in the syntax of both RE2 and Python."""

_Unit = tuple[str, str]
"""Host, and UUID or position of a GPU or MIG instance."""


@dataclass(frozen=True)
class FoundColumn:
    """One metric that was found and the column that it fills; combined columns have no metric of their own."""

    column: str
    """`table.column`, or `given.user`."""

    metrics: tuple[str, ...]
    unit: str
    kind: str
    covers_s: float | None
    series: int


@dataclass(frozen=True)
class FoundExporter:
    exporter: Exporter
    hosts: int
    gpus: int
    series: int
    columns: tuple[FoundColumn, ...]
    labels: tuple[tuple[str, str], ...]
    """Columns of `device` and labels about the user, with the label that provides each."""

    unused: tuple[str, ...]
    """Its metrics without a column in fallow."""


@dataclass(frozen=True)
class Missing:
    """Missing information for some GPUs, and the metrics of present exporters that would provide it."""

    absence: Absence
    gpus: int
    """Number of GPUs that lack it; 0 for information about the site."""

    would_tell: tuple[str, ...]


@dataclass(frozen=True)
class Recognised:
    """A server's exporters and metrics; `not_understood`: metrics that look like a GPU's, with a series count."""

    exporters: tuple[FoundExporter, ...]
    gpus: int
    hosts: int
    missing: tuple[Missing, ...]
    not_understood: tuple[tuple[str, int], ...]

    @property
    def has_servers(self) -> bool:
        return any(_is_of_servers(found.exporter) for found in self.exporters)


def _is_of_servers(exporter: Exporter) -> bool:
    return any(metric.table == SERVING.name for metric in exporter.metrics)


@dataclass
class _Seen:
    """The accumulated series of one exporter."""

    series: int = 0
    hosts: set[str] = field(default_factory=set)
    metrics: Counter[MappedMetric] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    labels: dict[str, str] = field(default_factory=dict)
    unused: set[str] = field(default_factory=set)
    columns_of: dict[_Unit, set[str]] = field(default_factory=lambda: defaultdict(set))
    cards: dict[_Unit, _Unit] = field(default_factory=dict)
    """The card of each MIG instance."""

    @property
    def gpus(self) -> int:
        """Return the number of whole GPUs and MIG instances."""
        return len(self.columns_of.keys() - set(self.cards.values()))


def recognised(labels: Iterable[Labels], exporters: Sequence[Exporter]) -> Recognised:
    """Return the series of a server, sorted by exporter and column; `exporters` in their order of preference."""
    series = list(labels)
    renaming = renaming_targets(series)
    seen: dict[str, _Seen] = {exporter.name: _Seen() for exporter in exporters}
    here: dict[tuple[str, ...], list[Exporter]] = defaultdict(list)
    strange: list[Labels] = []
    for one, found in zip(series, mapped_series(series, exporters), strict=True):
        if found is None:
            strange.append(one)
            continue
        _add_series(seen[found.exporter.name], one, found, renaming)
        if found.exporter not in here[target_of(one)]:
            here[target_of(one)].append(found.exporter)
    not_understood = _unknown_metrics(strange, here, seen)
    found_exporters = tuple(
        _found_exporter(exporter, seen[exporter.name]) for exporter in exporters if seen[exporter.name].series
    )
    columns_of = _columns_by_gpu(seen)
    hosts = {host for host, _ in columns_of}
    return Recognised(
        found_exporters, len(columns_of), len(hosts), _missing_information(found_exporters, columns_of), not_understood
    )


def _add_series(seen: _Seen, series: Labels, found: MappedSeries, renaming: frozenset[tuple[str, ...]]) -> None:
    exporter = found.exporter
    seen.series += 1
    seen.named[series["__name__"]] += 1
    for mapped in found.metrics:
        seen.metrics[mapped] += 1
    host = host_of(series, exporter)
    if host and any(mapped.table for mapped in found.metrics):
        seen.hosts.add(host)
    gpu = gpu_of(series, exporter)
    if not (gpu.uuid or gpu.index):
        return
    unit = (host, f"{gpu.uuid or gpu.index}/{gpu.mig_instance}")
    if gpu.parent:
        seen.cards[unit] = (host, f"{gpu.parent}/")
    columns = seen.columns_of[unit]
    columns.update(f"{mapped.table}.{mapped.column}" for mapped in found.metrics if mapped.table)
    if any(mapped.table == GIVEN for mapped in found.metrics):
        columns.add(GIVEN)
    for word in user_of(series, exporter, renaming):
        columns.add(GIVEN)
        seen.labels.setdefault(f"{GIVEN}.{word}", _label_name(series, dict(exporter.user)[word]))
    for column, names in exporter.device:
        if name := _label_name(series, names):
            columns.add(f"device.{column}")
            seen.labels.setdefault(f"device.{column}", name)


def _label_name(series: Labels, names: tuple[str, ...]) -> str:
    return next((name for name in names if series.get(name)), "")


def _unknown_metrics(
    strange: list[Labels], here: dict[tuple[str, ...], list[Exporter]], seen: dict[str, _Seen]
) -> tuple[tuple[str, int], ...]:
    """Return metrics without an exporter, except those that an exporter of the same target is known to provide."""
    found: Counter[str] = Counter()
    for series in strange:
        name = series.get("__name__", "")
        owner = next((exporter for exporter in here.get(target_of(series), ()) if exporter.ignores(name)), None)
        if owner is not None:
            seen[owner.name].unused.add(name)
        else:
            found[name] += 1
    return tuple(sorted(found.items()))


def _found_exporter(exporter: Exporter, seen: _Seen) -> FoundExporter:
    columns = [
        FoundColumn(
            f"{mapped.table}.{mapped.column}", (mapped.metric,), mapped.unit, mapped.kind, mapped.covers_s, count
        )
        for mapped in exporter.metrics
        if mapped.table and (count := seen.metrics[mapped])
    ]
    for combined in exporter.combined:
        parts = (*combined.add, *combined.subtract)
        column = f"{combined.table}.{combined.column}"
        if all(seen.named[part] for part in parts) and all(column != each.column for each in columns):
            series = min(seen.named[part] for part in parts)
            columns.append(FoundColumn(column, parts, "", "reading", None, series))
    return FoundExporter(
        exporter,
        len(seen.hosts),
        seen.gpus,
        seen.series,
        tuple(columns),
        tuple(seen.labels.items()),
        tuple(sorted(seen.unused)),
    )


def _columns_by_gpu(seen: dict[str, _Seen]) -> dict[_Unit, set[str]]:
    """Return each GPU's columns from all exporters; a MIG instance also has its card's, and the card is left out."""
    columns_of: dict[_Unit, set[str]] = defaultdict(set)
    cards: dict[_Unit, _Unit] = {}
    for each in seen.values():
        cards |= each.cards
        # an exporter that names the user of one GPU shows that other GPUs have none
        names_users = {GIVEN} if any(GIVEN in columns for columns in each.columns_of.values()) else set()
        for unit, columns in each.columns_of.items():
            columns_of[unit] |= columns | names_users
    for instance, card in cards.items():
        columns_of[instance] = columns_of[instance] | columns_of.get(card, set())
    split = set(cards.values())
    return {unit: columns for unit, columns in columns_of.items() if unit not in split}


def _missing_information(
    exporters: tuple[FoundExporter, ...], columns_of: dict[_Unit, set[str]]
) -> tuple[Missing, ...]:
    combined = {column.column for found in exporters for column in found.columns if len(column.metrics) > 1}
    missing = []
    for absence in ABSENCES:
        lacking = (columns for columns in columns_of.values() if columns.isdisjoint(absence.sources))
        without = sum(1 for columns in lacking if not (absence.beside and columns.isdisjoint(absence.beside)))
        if without and combined.isdisjoint(absence.sources):
            missing.append(Missing(absence, without, _providing_metrics(exporters, absence)))
    everything = {column.column for found in exporters for column in found.columns} | {
        found.exporter.name for found in exporters
    }
    missing += [Missing(absence, 0, ()) for absence in OF_SITES if everything.isdisjoint(absence.sources)]
    return tuple(missing)


def _providing_metrics(exporters: tuple[FoundExporter, ...], absence: Absence) -> tuple[str, ...]:
    """Return metrics that the exporters know for this but do not provide."""
    return tuple(
        dict.fromkeys(
            mapped.metric
            for found in exporters
            if found.exporter.of_gpus
            for mapped in found.exporter.metrics
            if f"{mapped.table}.{mapped.column}" in absence.sources
        )
    )


_MOST_NAMES = 3


@dataclass(frozen=True)
class ReadValues:
    """Samples that a check has read: one chunk at most."""

    gpus: int
    contradictory: ContradictoryTimes


def check_text(found: Recognised, width: int = PAGE_COLUMNS, values: ReadValues | None = None) -> str:
    """Return a page for a terminal of that many columns."""
    return "\n".join([*_lines(found, width), *(() if values is None else _value_lines(values, width))])


def _value_lines(values: ReadValues, width: int) -> Iterator[str]:
    yield ""
    yield (
        f"Values that cannot be true together, of {count(values.gpus, 'GPU')}:"
        f" {'' if any(values.contradictory) else 'none'}".rstrip()
    )
    for each in values.contradictory:
        yield from wrap(f"{each}.", width, "  ", "    ")


def check_json(found: Recognised, values: ReadValues | None = None) -> str:
    """Return the same for machines; `covers_s` is null for a moment and text for a value since the previous scrape."""
    content = {
        "gpus": found.gpus,
        "hosts": found.hosts,
        "exporters": [_exporter_content(each) for each in found.exporters],
        "missing": [
            {
                "what": each.absence.name,
                "columns": list(each.absence.sources),
                "gpus": each.gpus,
                "without": each.absence.without,
                "would_tell": list(each.would_tell),
            }
            for each in found.missing
        ],
        "not_understood": [{"metric": metric, "series": series} for metric, series in found.not_understood],
        "values": None if values is None else {"gpus": values.gpus, "contradictions": values.contradictory.as_json()},
    }
    return json_text(content)


def _exporter_content(found: FoundExporter) -> dict[str, object]:
    columns = [
        asdict(each) | {"covers_s": "since the scrape before" if each.covers_s == math.inf else each.covers_s}
        for each in found.columns
    ]
    return {
        "name": found.exporter.name,
        "title": found.exporter.title,
        "gpus": found.gpus,
        "hosts": found.hosts,
        "series": found.series,
        "columns": columns,
        "labels": dict(found.labels),
        "unused": list(found.unused),
        "readings": found.exporter.readings,
    }


def _lines(found: Recognised, width: int) -> Iterator[str]:
    if not found.gpus:
        yield "No series of a GPU were found."
    else:
        yield f"{count(found.gpus, 'GPU')} on {count(found.hosts, 'host')}."
    for each in sorted(found.exporters, key=lambda one: not one.exporter.of_gpus):
        yield ""
        yield from _exporter_lines(each, width)
    if found.missing and found.gpus:
        yield ""
        yield "Missing, with the consequence for fallow"
        for missing in found.missing:
            yield from _missing_lines(missing, found.gpus, width)
    if found.not_understood:
        yield ""
        yield "Not understood: your own mapping (--mapping FILE) can describe them"
        names = [[plain(metric), count(series, "series").removesuffix("s")] for metric, series in found.not_understood]
        yield from fitted_lines([["metric", ""], *names], width, [("metric", 30)], right=("",))[1:]


def _exporter_lines(found: FoundExporter, width: int) -> Iterator[str]:
    yield f"{found.exporter.title}: {_extent(found)}{found.series:,} series"
    if found.columns or found.labels:
        yield from _table_lines(found, width)
    if found.exporter.refused:
        yield from wrap(f"Not read: it {found.exporter.refused}.", width, "  ", "  ")
    if found.columns and found.exporter.readings:
        yield from wrap(found.exporter.readings, width, "  ", "  ")
    if found.unused:
        shown = ", ".join(found.unused[:_MOST_NAMES])
        more = len(found.unused) - _MOST_NAMES
        yield from wrap(f"Not used: {shown}{f' and {more} more' if more > 0 else ''}.", width, "  ", "  ")


def _extent(found: FoundExporter) -> str:
    if not found.hosts:
        return ""
    if _is_of_servers(found.exporter):
        return f"{count(found.hosts, 'target')}, "
    hosts = count(found.hosts, "host")
    return f"{count(found.gpus, 'GPU')} on {hosts}, " if found.exporter.of_gpus else f"{hosts}, "


def _table_lines(found: FoundExporter, width: int) -> list[str]:
    """Return a line for each column; on a narrow terminal without units and counts, so that the names stay whole."""
    rows = [["column", "is filled from", "a value is", "in", "series"]]
    order = list(dict.fromkeys(each.column for each in found.columns))
    before: set[str] = set()
    for each in sorted(found.columns, key=lambda column: order.index(column.column)):
        from_ = each.metrics[0] if len(each.metrics) == 1 else f"{len(each.metrics)} metrics together"
        name = "  else" if each.column in before else each.column
        rows.append([name, from_, _meaning(each), each.unit, f"{each.series:,}"])
        before.add(each.column)
    rows += [[column, f"label {label}", "", "", ""] for column, label in found.labels]
    shown = rows if width >= PAGE_COLUMNS else [row[:3] for row in rows]
    shrinking = [("is filled from", 44), ("a value is", 10), ("column", 16), ("is filled from", 24)]
    return fitted_lines(shown, width, shrinking, right=("series",))


def _meaning(column: FoundColumn) -> str:
    if column.kind == "average":
        return "mean, scrape" if column.covers_s in (None, math.inf) else f"mean, {column.covers_s:g} s"
    if column.kind == "reading":
        return "moment" if column.covers_s is None else f"{column.covers_s:.2g} s"
    return {"counter": "counter", "info": "fact", "count": "count"}[column.kind]


def _missing_lines(missing: Missing, gpus: int, width: int) -> Iterator[str]:
    of = f" (of {count(missing.gpus, 'GPU')})" if 0 < missing.gpus < gpus else ""
    text = f"{missing.absence.name}{of}: {missing.absence.without}."
    if missing.would_tell:
        text += f" {' or '.join(missing.would_tell[:_MOST_NAMES])} would tell."
    yield from wrap(text, width, "  ", "    ")
