"""The exporter of a series, and its labels: the GPU, the host, and the user."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from analytics.mapping.model import Exporter, MappedMetric
from analytics.scraped.samples import Labels, first_label

_TARGET = ("cluster", "job", "instance")


@dataclass(frozen=True)
class MappedSeries:
    """One series of a known exporter; `metrics` is empty where the exporter's own rules leave the series out."""

    exporter: Exporter
    metrics: tuple[MappedMetric, ...]


_REPLICAS = ("replica", "prometheus_replica", "__replica__", "prometheus", "monitor", "receive_replica")
"""Labels that distinguish servers which scrape the same targets."""


def replicas_of(labels: Labels) -> tuple[str, ...]:
    """Return the names of the replica of the metrics server that scraped a series."""
    return tuple(labels.get(name, "") for name in _REPLICAS)


def target_of(labels: Labels) -> tuple[str, ...]:
    """Return the scraped target: all series of one target are of one page."""
    return tuple(labels.get(name, "") for name in _TARGET)


def mapped_series(labels: Sequence[Labels], exporters: Sequence[Exporter]) -> list[MappedSeries | None]:
    """Return one entry for each series, in order; None: no exporter has such a metric.

    Of several exporters that have it, those count whose signature is among the target's other metrics, then the first without a signature.
    """
    names: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for series in labels:
        names[target_of(series)].add(series.get("__name__", ""))
    ranked = {target: _ranked_exporters(of_target, exporters) for target, of_target in names.items()}
    return [_mapped_entry(series, ranked[target_of(series)]) for series in labels]


def _ranked_exporters(names: set[str], exporters: Sequence[Exporter]) -> list[Exporter]:
    signed = [exporter for exporter in exporters if not names.isdisjoint(exporter.signed_by)]
    return [*signed, *(exporter for exporter in exporters if not exporter.signed_by)]


def _mapped_entry(series: Labels, ranked: list[Exporter]) -> MappedSeries | None:
    for exporter in ranked:
        if found := exporter.by_metric.get(series.get("__name__", "")):
            return MappedSeries(exporter, tuple(mapped for mapped in found if mapped.takes(series)))
    return None


_RENAMED = "exported_"
"""The prefix of a page's label that a Prometheus server sets itself (honor_labels off)."""

_PORT = re.compile(r"(?:^([^:\[\]]+)|^\[([^\]]+)\]):[\w-]+$")
"""`gn007:9400`, `[fd00::7]:9400`, and the name of a port (`gn007:metrics`), as Google's managed Prometheus writes it."""


@dataclass(frozen=True)
class GpuLabels:
    """The GPU of a series; texts are empty where no label states them.

    `uuid` is that of the MIG instance where a label has it, else of the card; `mig_instance` is the id of the GPU instance.
    """

    uuid: str
    index: str
    parent: str
    mig_instance: str


def gpu_of(labels: Labels, exporter: Exporter) -> GpuLabels:
    """Return the GPU or MIG instance of a series; all empty for a series of the host."""
    card = first_label(labels, exporter.gpu)
    if card and not card.startswith((exporter.gpu_prefix, "MIG-")):
        card = exporter.gpu_prefix + card
    own = first_label(labels, exporter.mig_uuid)
    instance = first_label(labels, exporter.mig_instance)
    of_instance = bool(own or instance)
    return GpuLabels(own or card, first_label(labels, exporter.index), card if of_instance else "", instance)


def host_of(labels: Labels, exporter: Exporter) -> str:
    """Return the host of a series: a label of the exporter's, else the scraped address without its port.

    A label that names the exporter's own pod does not count: it changes with every restart.
    """
    for name in exporter.host:
        found = labels.get(name, "")
        if found and not _is_own_pod(found, exporter):
            return found
    return address_host(labels.get("instance", ""))


def address_host(instance: str) -> str:
    """Return a scraped address without its port."""
    address = _PORT.match(instance)
    return instance if address is None else address[1] or address[2]


def renaming_targets(labels: Sequence[Labels]) -> frozenset[tuple[str, ...]]:
    """Return targets whose labels the server renamed: their plain `pod`, `namespace` and `container` are of the exporter itself."""
    return frozenset(target_of(series) for series in labels if any(name.startswith(_RENAMED) for name in series))


def user_of(labels: Labels, exporter: Exporter, renaming: frozenset[tuple[str, ...]]) -> dict[str, str]:
    """Return the user of a series' GPU, by USERS; a missing name is left out, an empty dict means that no user is named."""
    renamed = target_of(labels) in renaming
    found = {word: first_label(labels, _usable_names(names, renamed=renamed)) for word, names in exporter.user}
    if _is_own_pod(found.get("pod", ""), exporter):
        found |= {"pod": "", "namespace": "", "container": ""}
    return {word: value for word, value in found.items() if value}


def _is_own_pod(name: str, exporter: Exporter) -> bool:
    return bool(exporter.own_pods and re.fullmatch(exporter.own_pods, name))


def _usable_names(names: tuple[str, ...], *, renamed: bool) -> tuple[str, ...]:
    """Return the usable labels. Where the server renames, a plain label counts only if it has no renamed form among the names."""
    if not renamed:
        return names
    return tuple(name for name in names if f"{_RENAMED}{name}" not in names)
