"""Rows of all hosts of a window: chunk after chunk, the next one asked for while the one before is made into rows."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import polars as pl

from analytics.scraped.chunks import Chunk, Chunker
from analytics.scraped.discovery import Discovery, FoundHost, FoundNames
from analytics.scraped.host_rows import HostRows
from analytics.scraped.mapping.recognition import GPU_LIKE
from analytics.scraped.rows.row_settings import Pace, RowSettings, Source
from analytics.scraped.rows.scraped_rows import find_source_paces, host_rows
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from fallow.clock import HOUR_MS, MINUTE_MS

_CONTEXT_MS = 5 * MINUTE_MS
"""Read before a chunk: what its first rows follow on."""

_PACE_MS = HOUR_MS
"""Read before the first short chunk of a host: how often its sources are scraped and read the driver."""

_AHEAD = 1
_LOOK_S = 0.5
"""Between two looks whether to end."""


class ReadingStoppedError(Exception):
    """Somebody asked the reading to end: what of a window is not in the lake yet is dropped."""


@dataclass(frozen=True)
class ReadChunk:
    """What a chunk amounts to; `samples` are those of the chunk itself, and context."""

    chunk: Chunk
    hosts: tuple[HostRows, ...]
    samples: int
    targets: int


@dataclass(frozen=True)
class SeenWindow:
    """What discovery found in a window, before its samples are read."""

    since_ms: int
    until_ms: int
    names: FoundNames
    hosts: tuple[FoundHost, ...]


class SiteReader:
    """Of one server and some exporters; `close` ends what it has begun."""

    def __init__(
        self, server: MetricsServer, source: ScrapedSource, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._server, self._stopped = server, stopped
        self._exporters, self._collect_ms = source.exporters, source.collect_ms
        self._paces: dict[Source, Pace] = {}
        self._paced: set[str] = set()
        self._discovery = Discovery(server, source.exporters, source.match)
        self._chunker = Chunker()
        self._pool = ThreadPoolExecutor(1, "scraped-chunks")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def names(self, since_ms: int, until_ms: int) -> FoundNames:
        """The metrics of known exporters that the server has in the window. Raises InputError."""
        return self._discovery.names(since_ms, until_ms)

    def look(self, since_ms: int, until_ms: int) -> SeenWindow:
        """Which hosts have samples in the window, and of what. Raises InputError."""
        names = self._discovery.names(since_ms, until_ms)
        hosts = tuple(self._discovery.hosts(names, since_ms, until_ms))
        return SeenWindow(since_ms, until_ms, names, hosts)

    def labels(self, since_ms: int, until_ms: int) -> list[Labels]:
        """All series of known metrics, and of metrics that look like a GPU's. Raises InputError, also for too many."""
        names = self._discovery.names(since_ms, until_ms)
        wanted = names.every | names.of_sites
        known = self._server.series(self._discovery.selection(wanted).text, since_ms, until_ms) if wanted else []
        others = self._discovery.selection([]).like(GPU_LIKE)
        found = self._server.series(others, since_ms, until_ms)
        return [*known, *(each for each in found if each.get("__name__") not in wanted)]

    def read(self, seen: SeenWindow) -> Iterator[ReadChunk]:
        """The chunks of a window in order. Raises InputError, and ReadingStoppedError soon after somebody asked for that."""
        chunks = deque(self._chunker.chunks(seen.hosts, seen.since_ms, seen.until_ms))
        series = {host.name: host.series for host in seen.hosts}
        asked: deque[Future[ReadChunk]] = deque()
        try:
            while chunks or asked:
                while chunks and len(asked) <= _AHEAD:
                    asked.append(self._pool.submit(self._read_chunk, chunks.popleft(), seen.names))
                done = self._result(asked.popleft())
                chunk = done.chunk
                own = sum(series[name] for name in chunk.hosts)
                self._chunker.learn(done.samples, own, chunk.until_ms - chunk.since_ms)
                yield done
        finally:
            for future in asked:
                future.cancel()

    def _result(self, asked: Future[ReadChunk]) -> ReadChunk:
        while not self._stopped():
            with contextlib.suppress(TimeoutError):
                return asked.result(_LOOK_S)
        raise ReadingStoppedError

    def _read_chunk(self, chunk: Chunk, names: FoundNames) -> ReadChunk:
        is_short = chunk.until_ms - chunk.since_ms < 2 * _PACE_MS
        is_new = is_short and not self._paced.issuperset(chunk.hosts)
        selection = self._discovery.selection(names.every, chunk.instances)
        since_ms = chunk.since_ms - (_PACE_MS if is_new else _CONTEXT_MS)
        samples = joined(self._server.samples(selection.text, since_ms, chunk.until_ms))
        if not samples.labels:
            return ReadChunk(chunk, (), 0, 0)
        if is_new:
            self._paces |= find_source_paces(samples, self._exporters, self._collect_ms)
            self._paced |= set(chunk.hosts)
        settings = RowSettings(chunk.since_ms, chunk.until_ms, self._collect_ms, self._paces if is_short else {})
        rows = host_rows(samples, self._exporters, settings)
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
