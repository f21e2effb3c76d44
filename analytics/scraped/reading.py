"""Rows of all hosts of a window: chunk after chunk, the next one asked for while the one before is made into rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import polars as pl

from analytics.scraped.chunks import Chunk, Chunker
from analytics.scraped.discovery import Discovery, FoundHost, FoundNames
from analytics.scraped.host_rows import HostRows
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.rows.scraped_rows import host_rows
from analytics.scraped.rows.row_settings import RowSettings
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.server.metrics_server import MetricsServer
from fallow.clock import MINUTE_MS

_CONTEXT_MS = 5 * MINUTE_MS
"""Read before a chunk: what its first rows follow on."""

_AHEAD = 1


@dataclass(frozen=True)
class ReadChunk:
    """What a chunk amounts to; `samples` are those of the chunk itself, and context."""

    chunk: Chunk
    hosts: tuple[HostRows, ...]
    samples: int
    targets: int
    seconds: float = 0.0


@dataclass(frozen=True)
class SeenWindow:
    """What discovery found in a window, before its samples are read."""

    since_ms: int
    until_ms: int
    names: FoundNames
    hosts: tuple[FoundHost, ...]


class SiteReader:
    """Of one server and some exporters; `close` ends what it has begun."""

    def __init__(self, server: MetricsServer, exporters: Sequence[Exporter], match: str) -> None:
        self._server, self._exporters = server, exporters
        self._discovery = Discovery(server, exporters, match)
        self._chunker = Chunker()
        self._pool = ThreadPoolExecutor(1, "scraped-chunks")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self, since_ms: int, until_ms: int) -> SeenWindow:
        """Which hosts have samples in the window, and of what. Raises InputError."""
        names = self._discovery.names(since_ms, until_ms)
        hosts = tuple(self._discovery.hosts(names, since_ms, until_ms))
        return SeenWindow(since_ms, until_ms, names, hosts)

    def labels(self, seen: SeenWindow) -> list[Labels]:
        """All series of known metrics, of one host after another until there are many. Raises InputError."""
        selection = self._discovery.selection(seen.names.every)
        return self._server.series(selection.text, seen.since_ms, seen.until_ms)

    def read(self, seen: SeenWindow) -> Iterator[ReadChunk]:
        """The chunks of a window in order. Raises InputError."""
        chunks = deque(self._chunker.chunks(seen.hosts, seen.since_ms, seen.until_ms))
        series = {host.name: host.series for host in seen.hosts}
        asked: deque[Future[ReadChunk]] = deque()
        try:
            while chunks or asked:
                while chunks and len(asked) <= _AHEAD:
                    asked.append(self._pool.submit(self._read_chunk, chunks.popleft(), seen.names))
                done = asked.popleft().result()
                chunk = done.chunk
                own = sum(series[name] for name in chunk.hosts)
                self._chunker.learn(done.samples, own, chunk.until_ms - chunk.since_ms)
                yield done
        finally:
            for future in asked:
                future.cancel()

    def _read_chunk(self, chunk: Chunk, names: FoundNames) -> ReadChunk:
        selection = self._discovery.selection(names.every, chunk.instances)
        samples = joined(self._server.samples(selection.text, chunk.since_ms - _CONTEXT_MS, chunk.until_ms))
        if not samples.labels:
            return ReadChunk(chunk, (), 0, 0)
        rows = host_rows(samples, self._exporters, RowSettings(chunk.since_ms, chunk.until_ms))
        own = int((samples.frame["time_ms"] >= chunk.since_ms).sum())
        return ReadChunk(chunk, tuple(rows), own, len({each.get("instance") for each in samples.labels}))


def joined(pieces: Iterable[Samples]) -> Samples:
    """Pieces of one selector as one: each series once, its samples in order of time."""
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    labels: list[Labels] = []
    frames = [pl.DataFrame(schema=SAMPLE_SCHEMA)]
    for piece in pieces:
        own = []
        for each in piece.labels:
            key = tuple(sorted(each.items()))
            if key not in numbers:
                numbers[key] = len(labels)
                labels.append(each)
            own.append(numbers[key])
        moved = pl.Series(own, dtype=pl.UInt32).gather(piece.frame["series"])
        frames.append(piece.frame.with_columns(series=moved))
    frame = pl.concat(frames)
    return Samples(tuple(labels), frame.sort("series", "time_ms") if len(frames) > 2 else frame)
