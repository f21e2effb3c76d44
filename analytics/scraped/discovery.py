"""Hosts with GPU series on a server, and their targets, found with a few metrics of each exporter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from analytics.mapping.model import Exporter
from analytics.scraped.samples import Labels, SeriesSelection
from analytics.scraped.series_labels import gpu_of, host_of, mapped_series
from analytics.scraped.server.answers import OversizedAnswerError
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.serving_rows import SERVER_NAMES
from fallow.clock import HOUR_MS, MINUTE_MS

_TELLING = ("gpu_util_pct", "mem_used_bytes")
"""Every GPU has one of these columns; the metric that fills it differs from card to card."""

_AT_ONCE = 120
_SHORTEST_MS = 10 * MINUTE_MS


@dataclass
class FoundHost:
    """One host of a window: the targets that describe it, its GPUs, and the number of its simultaneous series."""

    name: str
    instances: set[str] = field(default_factory=set)
    gpus: set[tuple[str, str]] = field(default_factory=set)
    series: int = 0


@dataclass(frozen=True)
class FoundNames:
    """The metrics of known exporters that a server has in a window."""

    of_gpus: frozenset[str]
    of_hosts: frozenset[str]
    """Metrics of exporters without GPUs, such as node-exporter."""

    telling: frozenset[str]
    """Enough of `of_gpus` to find every GPU and to distinguish the exporters."""

    of_servers: frozenset[str]
    """Metrics of inference servers."""

    of_sites: frozenset[str]
    """One metric of each other exporter, such as kube-state-metrics: it shows that the exporter is present."""

    titles: tuple[str, ...]
    """Titles of the exporters of GPUs, and of hosts; inference servers are one."""

    refused: tuple[str, ...] = ()
    """Sentences about exporters that cannot be read."""

    @property
    def every(self) -> frozenset[str]:
        return self.of_gpus | self.of_hosts


class Discovery:
    """Asks one server for the series of some exporters, narrowed by the site's matchers."""

    def __init__(self, server: MetricsServer, exporters: Sequence[Exporter], match: str) -> None:
        self._server, self._exporters, self._match = server, exporters, match

    def selection(self, names: Iterable[str], instances: Iterable[str] | None = None) -> SeriesSelection:
        return SeriesSelection(frozenset(names), None if instances is None else frozenset(instances), self._match)

    def names(self, since_ms: int, until_ms: int) -> FoundNames:
        """Return the names that the server has in the window. Raises InputError."""
        wanted = {metric.metric for exporter in self._exporters for metric in exporter.metrics}
        wanted |= {name for exporter in self._exporters for name in exporter.signed_by} | SERVER_NAMES
        there = frozenset(self._present_names(sorted(wanted), since_ms, until_ms)) & wanted
        of_gpus = {name for each in self._exporters if each.of_gpus for name in _all_names(each)}
        of_hosts = {name for each in self._exporters if _is_of_hosts(each) for name in _all_names(each)}
        telling = {
            each.title: _identifying_names(each, self._own_names(each, there, since_ms, until_ms))
            for each in self._exporters
            if each.of_gpus
        }
        titles = [title for title, names in telling.items() if names]
        titles += [each.title for each in self._exporters if _is_of_hosts(each) and _all_names(each) & there]
        every = frozenset[str]().union(*telling.values())
        others = (each for each in self._exporters if not each.of_gpus and not _is_of_hosts(each))
        of_sites = {next((metric.metric for metric in each.metrics if metric.metric in there), "") for each in others}
        of_servers = there & SERVER_NAMES
        titles += ["inference servers"] if of_servers else []
        refused = [
            f"{each.title} {each.refused}" for each in self._exporters if each.refused and there & set(each.signed_by)
        ]
        return FoundNames(
            of_gpus=there & of_gpus,
            of_hosts=there & of_hosts - of_gpus,
            telling=every,
            of_servers=of_servers,
            of_sites=frozenset(of_sites - {""}),
            titles=tuple(titles),
            refused=tuple(refused),
        )

    def _own_names(self, exporter: Exporter, there: frozenset[str], since_ms: int, until_ms: int) -> frozenset[str]:
        """Return the present names that have series with the labels that the exporter demands."""
        own = sorted(_all_names(exporter) & there)
        if not (own and exporter.only):
            return there
        selection = self.selection(own)
        return frozenset(self._server.names(replace(selection, only=exporter.only).text, since_ms, until_ms))

    def _present_names(self, wanted: Sequence[str], since_ms: int, until_ms: int) -> Iterator[str]:
        """Yield the names that the server has, a few at a time: names may be long, and the query is part of a URL."""
        for first in range(0, len(wanted), _AT_ONCE):
            yield from self._server.names(self.selection(wanted[first : first + _AT_ONCE]).text, since_ms, until_ms)

    def hosts(self, names: FoundNames, since_ms: int, until_ms: int) -> list[FoundHost]:
        """Return the hosts with GPUs in the window, by name. Raises InputError, also for more series than the limit."""
        if not names.telling:
            return []
        found: dict[str, FoundHost] = {}
        per_gpu: dict[str, int] = {}
        for exporter, own in self._by_exporter(self._listed_series(names.telling, since_ms, until_ms)):
            gpu = gpu_of(own, exporter)
            name = host_of(own, exporter)
            if name and (gpu.uuid or gpu.index):
                host = found.setdefault(name, FoundHost(name))
                host.instances.add(own.get("instance", ""))
                host.gpus.add((exporter.name, gpu.uuid or gpu.index))
                per_gpu.setdefault(exporter.name, len(_all_names(exporter) & names.of_gpus))
        for host in found.values():
            host.series = sum(per_gpu[exporter] for exporter, _ in host.gpus)
        if names.of_hosts:
            self._add_host_targets(found, names, since_ms, until_ms)
        return sorted(found.values(), key=lambda each: each.name)

    def servers(self, names: FoundNames, since_ms: int, until_ms: int) -> list[FoundHost]:
        """Return the targets with series of inference servers. Raises InputError, also for too many series."""
        found: dict[str, FoundHost] = {}
        for labels in self._listed_series(names.of_servers, since_ms, until_ms) if names.of_servers else ():
            for each in labels:
                instance = each.get("instance", "")
                found.setdefault(instance, FoundHost(instance, {instance})).series += 1
        return sorted(found.values(), key=lambda each: each.name)

    def _add_host_targets(self, found: dict[str, FoundHost], names: FoundNames, since_ms: int, until_ms: int) -> None:
        """Add the own targets of hosts with GPUs. The number of series of the first one counts for all of them."""
        telling = [
            next((metric.metric for metric in exporter.metrics if _is_single(metric.metric, exporter, names)), "")
            for exporter in self._exporters
            if _is_of_hosts(exporter)
        ]
        if not any(telling):
            return
        labels = self._listed_series(filter(None, telling), since_ms, until_ms)
        series = None
        for exporter, own in self._by_exporter(labels):
            host = found.get(host_of(own, exporter))
            instance = own.get("instance", "")
            if host is None or instance in host.instances:
                continue
            if series is None:
                one = self.selection(names.of_hosts, [instance])
                series = len(self._server.series(one.text, until_ms - min(HOUR_MS, until_ms - since_ms), until_ms))
            host.instances.add(instance)
            host.series += series

    def _listed_series(self, names: Iterable[str], since_ms: int, until_ms: int) -> Iterator[Sequence[Labels]]:
        """Yield the series of these metrics, in halves of the window while they are too many: every pod has its own."""
        waiting, text = [(since_ms, until_ms)], self.selection(names).text
        while waiting:
            start_ms, end_ms = waiting.pop()
            try:
                yield self._server.series(text, start_ms, end_ms)
            except OversizedAnswerError:
                if end_ms - start_ms <= _SHORTEST_MS:
                    raise
                middle_ms = (start_ms + end_ms) // 2
                waiting += [(middle_ms, end_ms), (start_ms, middle_ms)]

    def _by_exporter(self, listed: Iterable[Sequence[Labels]]) -> Iterator[tuple[Exporter, Labels]]:
        for labels in listed:
            for series, own in zip(mapped_series(labels, self._exporters), labels, strict=True):
                if series is not None:
                    yield series.exporter, own


def _all_names(exporter: Exporter) -> set[str]:
    return {metric.metric for metric in exporter.metrics} | set(exporter.signed_by)


def _is_of_hosts(exporter: Exporter) -> bool:
    return not exporter.of_gpus and any(metric.table == "host" for metric in exporter.metrics)


def _identifying_names(exporter: Exporter, there: frozenset[str]) -> set[str]:
    """Return the exporter's signature metrics, and metrics that every GPU has."""
    signs = set(exporter.signed_by) & there
    if exporter.signed_by and not signs:
        return set()
    of_gpus = [metric for metric in exporter.metrics if metric.table == "gpu" and metric.metric in there]
    found = {metric.metric for metric in of_gpus if metric.column in _TELLING}
    return signs | (found or {metric.metric for metric in of_gpus[:1]})


def _is_single(name: str, exporter: Exporter, names: FoundNames) -> bool:
    """Return whether a target has one series of the metric."""
    return name in names.of_hosts and all(not metric.sum_over for metric in exporter.by_metric[name])
