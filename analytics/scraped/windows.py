"""One window of one server into one lake: what `import` does day after day, and `follow` every few minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analytics.importers.model import Imported
from analytics.scraped.kube_reading import kube_samples
from analytics.scraped.lake_writer import LakeWriter
from analytics.scraped.reading import ReadChunk, SeenWindow, SiteReader
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.who.given import Given


@dataclass(frozen=True)
class WindowWork:
    """Reads a window and writes it; the parts are as `SiteReader` and `LakeWriter` have them."""

    server: MetricsServer
    reader: SiteReader
    writer: LakeWriter
    match: str
    judge: Callable[[Sequence[Imported]], None]
    """Is shown the rows of each chunk before they are published; raises InputError where they are not to be."""

    told: Callable[[ReadChunk], None]
    """Is told of each chunk that is in the lake."""

    def run(self, since_ms: int, until_ms: int) -> SeenWindow:
        """Raises InputError from the server and LakeError from the lake; what is in the lake then is whole."""
        self.writer.begin_window()
        seen = self.reader.look(since_ms, until_ms)
        given: list[Given] = []
        for chunk in self.reader.read(seen):
            given.append(self._publish(chunk))
            self.told(chunk)
        kube = kube_samples(self.server, self.match, since_ms, until_ms) if seen.hosts else None
        if given or until_ms == self.writer.settings.until_ms:
            self.writer.write_allocations(Given.joined([Given.of([]), *given]), kube, until_ms)
        return seen

    def _publish(self, chunk: ReadChunk) -> Given:
        """Returns who was named on the chunk's GPUs, by the hosts' names in the lake."""
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
