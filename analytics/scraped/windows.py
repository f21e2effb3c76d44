"""One window of one server into one lake: the step that `import` repeats by day, and `follow` every few minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.importers.model import Imported
from analytics.scraped.lake_writer import LakeWriter
from analytics.scraped.reading import ReadChunk, SeenWindow, SiteReader, joined
from analytics.scraped.samples import Samples, SeriesSelection
from analytics.scraped.series_labels import clustered_host
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.serving_rows import served_models
from analytics.scraped.source import ScrapedSource
from analytics.scraped.who.kube_metrics import KUBE_METRICS, kube_selectors
from analytics.scraped.who.label_runs import Given
from fallow.clock import HOUR_MS, MINUTE_MS

_LOOK_MS = 2 * MINUTE_MS
"""Long enough for a sample of every series."""

_STEP_MS = 5 * MINUTE_MS
_MOST = 2_000_000
"""Samples of a window that are kept: for more samples, steps are longer, and only a short interval is read in each."""


def kube_samples(server: MetricsServer, match: str, since_ms: int, until_ms: int, cluster: str = "") -> Samples | None:
    """Return the samples that show allocations; None if the server has none of these series.

    Nodes are named with the label `cluster`. Raises InputError.
    """
    if not server.names(SeriesSelection(frozenset(KUBE_METRICS), match=match).text, since_ms, until_ms):
        return None
    selectors = kube_selectors(match)
    series = 0
    if until_ms - since_ms > HOUR_MS:
        newest = (server.samples(each, until_ms - _LOOK_MS, until_ms) for each in selectors)
        series = sum(len(joined(parts).labels) for parts in newest)
    step_ms = max(_STEP_MS, (until_ms - since_ms) * series // _MOST)
    looks = [(since_ms, until_ms)] if step_ms == _STEP_MS else list(_read_intervals(since_ms, until_ms, step_ms))
    found = joined(
        _thinned_samples(part, step_ms) for each in selectors for look in looks for part in server.samples(each, *look)
    )
    named = ({**each, "node": clustered_host(each.get("node", ""), each, cluster)} for each in found.labels)
    return replace(found, labels=tuple(named)) if cluster else found


def _read_intervals(since_ms: int, until_ms: int, step_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the intervals to read; the last one ends with the window, for the runs at that time."""
    for end_ms in range(until_ms, since_ms, -step_ms):
        yield max(since_ms, end_ms - _LOOK_MS), end_ms


def _thinned_samples(samples: Samples, step_ms: int) -> Samples:
    """Return the last sample of each series in each step; the end of a series shows no more than its last sample."""
    frame = samples.frame.drop_nulls("value").with_columns(_step=pl.col("time_ms") // step_ms)
    return Samples(samples.labels, frame.unique(["series", "_step"], keep="last", maintain_order=True).drop("_step"))


@dataclass(frozen=True)
class WindowWork:
    """Reads a window and writes it; the parts are as `SiteReader` and `LakeWriter` have them."""

    source: ScrapedSource
    server: MetricsServer
    reader: SiteReader
    writer: LakeWriter
    judge: Callable[[Sequence[Imported]], None]
    """Receives the rows of each chunk before they are published. Raises InputError to prevent that."""

    written: Callable[[ReadChunk], None]
    """Receives each chunk that is in the lake."""

    def run(self, since_ms: int, until_ms: int) -> SeenWindow:
        """Read and write a window. Raises InputError (server) and LakeError (lake), after which the lake is whole."""
        self.writer.begin_window()
        seen = self.reader.look(since_ms, until_ms)
        given: list[Given] = []
        for chunk in self.reader.read(seen):
            given.append(self._publish(chunk))
            self.written(chunk)
        own = self.source
        kube = kube_samples(self.server, own.match, since_ms, until_ms, own.cluster) if seen.hosts else None
        if given or until_ms == self.writer.settings.until_ms:
            self.writer.write_allocations(Given.joined([Given.of([]), *given]), kube, until_ms)
        for part, samples in self.reader.servers(seen):
            self.writer.write_servers(served_models(samples, part.since_ms, part.until_ms), until_ms)
            self.writer.totals.samples += samples.frame.height
        return seen

    def _publish(self, chunk: ReadChunk) -> Given:
        """Publish a chunk. Return the users named on its GPUs, by the hosts' names in the lake."""
        totals = self.writer.totals
        totals.samples += chunk.samples
        hosts = []
        for rows in chunk.hosts:
            imported = self.writer.imported(rows)
            totals.add_account(rows)
            totals.add_rows(imported.host, imported.gpu, imported.device)
            hosts.append(imported)
        self.judge(hosts)
        for imported in hosts:
            self.writer.write(imported)
        return Given.of([replace(rows, host=own.host) for rows, own in zip(chunk.hosts, hosts, strict=True)])
