"""Hosts that share a name: one host has GPUs of two clusters, or two GPUs at one position, at one moment.

This happens, for example, where one server scrapes several clusters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from analytics.mapping.model import Exporter
from analytics.mig import MIG_PREFIX
from analytics.scraped.rows.metric_frame import SampleArrays, ScrapedUnits
from analytics.scraped.samples import Labels, first_label
from analytics.scraped.series_labels import REPLICAS, gpu_of
from fallow.errors import InputError

_CLUSTERS = (
    "cluster", "cluster_name", "cluster_id", "clusterName", "k8s_cluster_name", "k8s.cluster.name", "k8s_cluster",
    "kubernetes_cluster", "kube_cluster", "exported_cluster",
    "datacenter", "dc", "region", "site", "environment", "env",
)  # fmt: skip
"""Labels that name a cluster, the usual first: hosts of one name that differ in one of them are two hosts."""
_OF_TARGETS = (*(name for name in _CLUSTERS if "cluster" in name.lower()), "datacenter", "dc")
"""Those that no exporter sets for a single GPU by the pod that has it."""
_Seen = tuple[int, int, int]
"""First and last time, and a series."""


@dataclass(frozen=True)
class SharedPosition:
    """Two GPUs at one position; without `index`, of two clusters. `label`: one in which they differ, else empty."""

    host: str
    gpus: tuple[str, str]
    index: str
    label: str
    values: tuple[str, str]

    @property
    def is_of_clusters(self) -> bool:
        return self.label in _CLUSTERS

    @property
    def sentence(self) -> str:
        differs = (
            f"their label {self.label} differs ('{self.values[0]}', '{self.values[1]}')"
            if self.label
            else "no label tells them apart"
        )
        gpus = f" ({' and '.join(self.gpus)})" if self.gpus[0] != self.gpus[1] else ""
        which = f"two GPUs of index {self.index}" if self.index else "GPUs of two clusters"
        return f"host {self.host} has {which} at one time{gpus}: {differs}"

    @property
    def remedy(self) -> str:
        matcher = f"""--match '{self.label}="{self.values[0]}"'"""
        return f"read one of them with {matcher}, or name hosts by both with --cluster-label {self.label}"


def checked_positions(labels: Sequence[Labels], found: ScrapedUnits, samples: SampleArrays) -> dict[str, str]:
    """Return a doubt by host. Raises InputError where a host of one name is in two clusters."""
    doubts: dict[str, str] = {}
    for shared in (*_shared_positions(labels, found, samples), *_shared_hosts(labels, found, samples)):
        if shared.is_of_clusters:
            raise InputError(shared.sentence, shared.remedy)
        narrowed = f"; {shared.remedy}" if shared.label else ""
        doubts.setdefault(shared.host, f"{shared.sentence}{narrowed}")
    return doubts


def _shared_positions(labels: Sequence[Labels], found: ScrapedUnits, samples: SampleArrays) -> Iterator[SharedPosition]:
    units = tuple(found.units)
    spans = defaultdict[tuple[str, str, str], dict[tuple[str, str], tuple[int, int, int]]](dict)
    for series, code in found.unit_of.items():
        unit, (begin, end) = units[code], samples.first[series : series + 2]
        exporter = found.exporters[unit.source[0]]
        index = gpu_of(labels[series], exporter).index
        if begin == end or not (unit.gpu and index) or unit.parent or unit.gpu.startswith(MIG_PREFIX):
            continue
        # without a UUID, GPUs of two clusters have one name
        scope = first_label(labels[series], _CLUSTERS) if unit.gpu.startswith(f"{unit.host}/") else ""
        first_ms, last_ms = int(samples.time_ms[begin]), int(samples.time_ms[end - 1])
        at = spans[exporter.name, unit.host, index]
        before = at.get((unit.gpu, scope), (first_ms, last_ms, series))
        at[unit.gpu, scope] = (min(first_ms, before[0]), max(last_ms, before[1]), before[2])
    for (name, host, index), at in spans.items():
        for (one, own), (other, next_) in pairwise(sorted(at.items(), key=lambda each: each[1])):
            if next_[0] <= own[1]:
                label = _differing_label(labels[own[2]], labels[next_[2]], found.exporters[name])
                values = (labels[own[2]].get(label, ""), labels[next_[2]].get(label, ""))
                yield SharedPosition(host, (one[0], other[0]), index, label, values)


def _shared_hosts(labels: Sequence[Labels], found: ScrapedUnits, samples: SampleArrays) -> Iterator[SharedPosition]:
    """Yield hosts where one exporter has GPUs of two clusters at once, none in both: replicas see the same GPUs."""
    units = tuple(found.units)
    at = defaultdict[tuple[str, str, str], dict[str, dict[str, _Seen]]](lambda: defaultdict(dict))
    for series, code in found.unit_of.items():
        unit, (begin, end) = units[code], samples.first[series : series + 2]
        label = next((name for name in _OF_TARGETS if labels[series].get(name)), "")
        if begin < end and unit.gpu and label:
            there = at[unit.source[0], unit.host, label][labels[series][label]]
            first_ms, last_ms = int(samples.time_ms[begin]), int(samples.time_ms[end - 1])
            before = there.get(unit.gpu, (first_ms, last_ms, series))
            there[unit.gpu] = (min(first_ms, before[0]), max(last_ms, before[1]), series)
    for (_, host, label), by_value in at.items():
        for (one, mine), (other, theirs) in pairwise(sorted(by_value.items())):
            begun, ended = (
                max(min(each)[0] for each in (mine.values(), theirs.values())),
                min(max(seen[1] for seen in each) for each in (mine.values(), theirs.values())),
            )
            if mine.keys().isdisjoint(theirs) and begun <= ended:
                yield SharedPosition(host, (min(mine), min(theirs)), "", label, (one, other))


def _differing_label(one: Labels, other: Labels, exporter: Exporter) -> str:
    """Return the label in which two series differ and that is not of the GPU or its user: a cluster's if possible."""
    of_gpu = {
        *exporter.gpu,
        *exporter.index,
        *exporter.mig_uuid,
        *exporter.mig_instance,
        *REPLICAS,
        "__name__",
        "device",
    }
    of_gpu |= {name for _, names in (*exporter.device, *exporter.user) for name in names} | {"hw.id", "hw_id"}
    differing = [name for name in (*_CLUSTERS, *one, *other) if one.get(name, "") != other.get(name, "")]
    return next((name for name in differing if name not in of_gpu), "")
