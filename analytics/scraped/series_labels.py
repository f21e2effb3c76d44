"""The exporter of a series, and its labels: the GPU, the host, and the user."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analytics.mapping.model import Exporter, MappedMetric
from analytics.scraped.hardware_labels import hardware_labels
from analytics.scraped.samples import Labels, first_label, is_stated

_TARGET = ("cluster", "job", "instance")


@dataclass(frozen=True)
class MappedSeries:
    """One series of a known exporter; `metrics` is empty where the exporter's own rules leave the series out."""

    exporter: Exporter
    metrics: tuple[MappedMetric, ...]


REPLICAS = ("replica", "prometheus_replica", "__replica__", "prometheus", "monitor", "receive_replica")
"""Labels that distinguish servers which scrape the same targets."""


def replicas_of(labels: Labels) -> tuple[str, ...]:
    """Return the names of the replica of the metrics server that scraped a series."""
    return tuple(labels.get(name, "") for name in REPLICAS)


def target_of(labels: Labels) -> tuple[str, ...]:
    """Return the scraped target: all series of one target are of one page."""
    return tuple(labels.get(name, "") for name in _TARGET)


def mapped_series(labels: Sequence[Labels], exporters: Sequence[Exporter]) -> list[MappedSeries | None]:
    """Return one entry for each series, in order; None: no exporter has such a metric.

    Exporters share names: a site's own mapping counts first, then an exporter whose signature is among the target's
    metrics, then the exporter that can use most of the target's metrics.
    """
    by_name = defaultdict[str, list[Exporter]](list)
    for exporter in exporters:
        for name in exporter.by_metric:
            by_name[name].append(exporter)
    names, usable = defaultdict[tuple[str, ...], set[str]](set), defaultdict[tuple[str, ...], set[tuple[str, str]]](set)
    candidates: list[dict[str, MappedSeries]] = []
    for series in labels:
        target, name = target_of(series), series.get("__name__", "")
        names[target].add(name)
        candidates.append(_candidates(series, by_name.get(name, ())))
        usable[target].update((each, name) for each, found in candidates[-1].items() if found.metrics)
    ranked = {target: _ranked_exporters(own, usable[target], exporters) for target, own in names.items()}
    return [
        next((own[name] for name in ranked[target_of(series)] if name in own), None)
        for series, own in zip(labels, candidates, strict=True)
    ]


def _candidates(series: Labels, exporters: Iterable[Exporter]) -> dict[str, MappedSeries]:
    """Return the entry of the series by each exporter that may have written it."""
    return {
        exporter.name: MappedSeries(
            exporter, tuple(mapped for mapped in exporter.by_metric[series["__name__"]] if mapped.takes(series))
        )
        for exporter in exporters
        if exporter.takes(series)
    }


def _ranked_exporters(names: set[str], usable: set[tuple[str, str]], exporters: Sequence[Exporter]) -> list[str]:
    """Return the names of the exporters that a target with these metrics may be, the likeliest first."""
    counts = Counter(exporter for exporter, _ in usable)
    possible = [each for each in exporters if not (each.signed_by and names.isdisjoint(each.signed_by))]
    possible.sort(key=lambda each: (not each.of_site, not each.signed_by, -counts[each.name]))
    return [each.name for each in possible]


_RENAMED = "exported_"
"""The prefix of a page's label that a Prometheus server sets itself (honor_labels off)."""

_PORT = re.compile(r"(?:^([^:\[\]]+)|^\[([^\]]+)\]):[\w-]+$")
"""`gn007:9400`, `[fd00::7]:9400`, and with a port's name, as by Google's managed Prometheus: `gn007:metrics`."""


_EVERY_HOST = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class GpuLabels:
    """The GPU of a series; texts are empty where no label states them.

    `uuid` is that of the MIG instance where a label has it, else of the card; `mig_instance` is the id of the GPU
    instance.
    """

    uuid: str
    index: str
    parent: str
    mig_instance: str


def gpu_of(labels: Labels, exporter: Exporter) -> GpuLabels:
    """Return the GPU or MIG instance of a series; all empty for a series of the host."""
    labels = {**labels, **hardware_labels(labels)}
    card = first_label(labels, exporter.gpu)
    if card and not card.startswith((exporter.gpu_prefix, "MIG-")):
        card = exporter.gpu_prefix + card
    own = first_label(labels, exporter.mig_uuid)
    instance = first_label(labels, exporter.mig_instance)
    of_instance = bool(own or instance)
    return GpuLabels(own or card, first_label(labels, exporter.index), card if of_instance else "", instance)


def host_of(labels: Labels, exporter: Exporter) -> str:
    """Return the host of a series: a label of the exporter's, else the scraped address without its port.

    A label that names the exporter's own pod does not count: it changes with every restart. Every host calls itself
    localhost.
    """
    named = [labels.get(name, "") for name in exporter.host]
    stated = [each for each in named if is_stated(each) and not _is_own_pod(each, exporter)]
    address = address_host(labels.get("instance", ""))
    own = next((each for each in (*stated, address) if not each.startswith(_EVERY_HOST)), "")
    return clustered_host(own or next(iter(stated), address), labels, exporter.cluster)


def clustered_host(host: str, labels: Labels, cluster: str) -> str:
    """Return the host's name with the value of the label `cluster`, where a series has it: `gn001@west`."""
    return f"{host}@{labels[cluster]}" if host and labels.get(cluster) else host


def address_host(instance: str) -> str:
    """Return a scraped address without its port."""
    address = _PORT.match(instance)
    return instance if address is None else address[1] or address[2]


def renaming_targets(labels: Sequence[Labels]) -> frozenset[tuple[str, ...]]:
    """Return targets with renamed labels: their plain `pod`, `namespace` and `container` are the exporter's own."""
    return frozenset(target_of(series) for series in labels if any(name.startswith(_RENAMED) for name in series))


def user_of(labels: Labels, exporter: Exporter, renaming: frozenset[tuple[str, ...]]) -> dict[str, str]:
    """Return the user of a series' GPU, by USERS, without missing names; an empty dict means that no user is named."""
    renamed = target_of(labels) in renaming
    found = {word: first_label(labels, _usable_names(names, renamed=renamed)) for word, names in exporter.user}
    if _is_own_pod(found.get("pod", ""), exporter):
        found |= {"pod": "", "namespace": "", "container": ""}
    return {word: value for word, value in found.items() if value}


def _is_own_pod(name: str, exporter: Exporter) -> bool:
    return bool(exporter.own_pods and re.fullmatch(exporter.own_pods, name))


def _usable_names(names: tuple[str, ...], *, renamed: bool) -> tuple[str, ...]:
    """Return the usable labels; if the server renames, without a plain label whose renamed form is among the names."""
    if not renamed:
        return names
    return tuple(name for name in names if f"{_RENAMED}{name}" not in names)
