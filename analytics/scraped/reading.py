"""Rows of all hosts of a window: chunk after chunk, the next one asked for while the one before is made into rows."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import polars as pl

from analytics.scraped.chunks import MOST_SAMPLES, Chunk, Chunker
from analytics.scraped.discovery import Discovery, FoundHost, FoundNames
from analytics.scraped.host_rows import HostRows
from analytics.scraped.mapping.recognition import GPU_LIKE
from analytics.scraped.rows.row_settings import INSTANCE, Pace, RowSettings, Source
from analytics.scraped.rows.scraped_rows import find_source_paces, host_rows
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from fallow.clock import HOUR_MS, MINUTE_MS

_CONTEXT_MS = 5 * MINUTE_MS
"""Read before a chunk: what its first rows follow on."""

_PACE_MS = HOUR_MS
"""Read before a short chunk where that is looked up: how often sources are scraped and read the driver."""

_PACE_KEPT_MS = 6 * HOUR_MS
"""Scrape intervals change, and a follower runs for months."""

_MOST_AT_ONCE = 2 * MOST_SAMPLES
"""Where a chunk turns out to have more, the rest of it is a chunk of its own."""

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
        self._paced: dict[str, int] = {}
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
        asked: deque[tuple[Chunk, Future[ReadChunk]]] = deque()
        try:
            while chunks or asked:
                while chunks and len(asked) <= _AHEAD:
                    asked.append(self._asked(chunks.popleft(), seen))
                whole, future = asked.popleft()
                done = self._result(future)
                chunk = done.chunk
                if chunk.until_ms < whole.until_ms:
                    asked.appendleft(self._asked(whole.part(chunk.until_ms, whole.until_ms), seen))
                own = sum(series[name] for name in chunk.hosts)
                self._chunker.learn(done.samples, own, chunk.until_ms - chunk.since_ms)
                yield done
        finally:
            for _, future in asked:
                future.cancel()

    def _asked(self, chunk: Chunk, seen: SeenWindow) -> tuple[Chunk, Future[ReadChunk]]:
        return chunk, self._pool.submit(self._read_chunk, chunk, seen.names)

    def _result(self, asked: Future[ReadChunk]) -> ReadChunk:
        while not self._stopped():
            with contextlib.suppress(TimeoutError):
                return asked.result(_LOOK_S)
        raise ReadingStoppedError

    def _read_chunk(self, chunk: Chunk, names: FoundNames) -> ReadChunk:
        is_short = chunk.until_ms - chunk.since_ms < 2 * _PACE_MS
        is_due = is_short and any(self._paced.get(each, 0) <= chunk.since_ms for each in chunk.instances)
        selection = self._discovery.selection(names.every, chunk.instances)
        since_ms = chunk.since_ms - (_PACE_MS if is_due else _CONTEXT_MS)
        pieces, is_whole = _some(self._server.samples(selection.text, since_ms, chunk.until_ms), chunk.since_ms)
        samples = joined(pieces)
        if not samples.labels:
            return ReadChunk(chunk, (), 0)
        if not is_whole:
            chunk = chunk.part(chunk.since_ms, int(str(pieces[-1].frame["time_ms"].max())) + 1)
        if is_due:
            self._find_paces(chunk, samples)
        settings = RowSettings(chunk.since_ms, chunk.until_ms, self._collect_ms, self._paces if is_short else {})
        rows = host_rows(samples, self._exporters, settings)
        own = int((samples.frame["time_ms"] >= chunk.since_ms).sum())
        return ReadChunk(chunk, tuple(rows), own)

    def _find_paces(self, chunk: Chunk, samples: Samples) -> None:
        """What was known of targets stays where the look shows nothing: values stood still, or the target has just begun.

        Those that have just begun are looked at again with the next window.
        """
        began: dict[str, int] = {}
        for series, first_ms in samples.frame.group_by("series").agg(pl.col("time_ms").min()).iter_rows():
            instance = samples.labels[series].get("instance", "")
            began[instance] = min(first_ms, began.get(instance, first_ms))
        young = {instance for instance, first_ms in began.items() if first_ms > chunk.since_ms - _PACE_MS // 2}
        for source, pace in find_source_paces(samples, self._exporters, self._collect_ms).items():
            before = self._paces.get(source)
            stood_still = before is not None and pace == Pace(before.scrape_ms, self._collect_ms)
            if not stood_still and (source[INSTANCE] not in young or source[INSTANCE] not in self._paced):
                self._paces[source] = pace
        self._paced |= dict.fromkeys(chunk.instances - young, chunk.since_ms + _PACE_KEPT_MS)


def _some(pieces: Iterable[Samples], since_ms: int) -> tuple[list[Samples], bool]:
    """As many of the pieces, which come in order of time, as may be held at once, some of it after `since_ms`; and whether that is all."""
    taken, number = [], 0
    for piece in pieces:
        taken.append(piece)
        number += piece.frame.height
        if number > _MOST_AT_ONCE and int(str(piece.frame["time_ms"].max())) >= since_ms:
            return taken, False
    return taken, True


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
