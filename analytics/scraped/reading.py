"""Rows of all hosts of a window in chunks of bounded size; the next chunk is requested while one becomes rows."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import polars as pl

from analytics.importers.model import Imported
from analytics.scraped.discovery import Discovery, FoundHost, FoundNames
from analytics.scraped.recognition import GPU_LIKE
from analytics.scraped.rows.model import INSTANCE, Pace, RowSettings, Source
from analytics.scraped.rows.scraped_rows import find_source_paces, host_rows
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, floor_ms

MOST_SAMPLES = 500_000
"""Samples in one chunk: 10 MB as a frame, and many times that while rows are made and the next chunk is read."""

_USUAL_STEP_MS = 15 * SECOND_MS
"""Assumed time between two samples of a series, until some were read."""


@dataclass(frozen=True)
class Chunk:
    """The unit that is read, made into rows and published at a time."""

    since_ms: int
    until_ms: int
    hosts: tuple[str, ...]
    instances: frozenset[str]
    share: float
    """Share of the whole window's work, 0 to 1."""

    def part(self, since_ms: int, until_ms: int) -> Chunk:
        """Return a part of the chunk in time."""
        share = self.share * (until_ms - since_ms) / (self.until_ms - self.since_ms)
        return replace(self, since_ms=since_ms, until_ms=until_ms, share=share)


class Chunker:
    """Cuts windows; learns from read chunks how dense samples are."""

    def __init__(self, most_samples: int = MOST_SAMPLES) -> None:
        self._most = most_samples
        self._per_series_ms = 1 / _USUAL_STEP_MS

    def learn(self, samples: int, series: int, length_ms: int) -> None:
        """Learn from the number of samples in a chunk; a chunk without any shows nothing."""
        if samples and series:
            self._per_series_ms = samples / (series * length_ms)

    def chunks(self, hosts: Iterable[FoundHost], since_ms: int, until_ms: int) -> list[Chunk]:
        """Return the chunks of a window, each host and moment once.

        Hosts that share a target are in one chunk, which may be cut in time.
        """
        groups = list(_groups(hosts))
        total = sum(group.series for group in groups) or 1
        room = self._most / (self._per_series_ms * (until_ms - since_ms))
        found: list[Chunk] = []
        for own in _packed_groups(groups, room):
            series = sum(group.series for group in own)
            parts = max(1, math.ceil(series / room))
            names = tuple(name for group in own for name in group.names)
            instances = frozenset(instance for group in own for instance in group.instances)
            found += [
                Chunk(start, end, names, instances, series / total * (end - start) / (until_ms - since_ms))
                for start, end in _segments(since_ms, until_ms, parts)
            ]
        return found


def days(since_ms: int, until_ms: int, step_ms: int = DAY_MS) -> Iterator[tuple[int, int]]:
    """Yield the window in UTC days, or shorter steps of one grid."""
    start_ms = since_ms
    while start_ms < until_ms:
        end_ms = min(until_ms, floor_ms(start_ms, step_ms) + step_ms)
        yield start_ms, end_ms
        start_ms = end_ms


@dataclass
class _Group:
    """Hosts that share targets."""

    names: list[str]
    instances: set[str]
    series: int


def _groups(hosts: Iterable[FoundHost]) -> Iterator[_Group]:
    by_instance: dict[str, _Group] = {}
    groups: dict[int, _Group] = {}
    for host in hosts:
        group = _Group([host.name], set(host.instances), host.series)
        for other in {
            id(by_instance[each]): by_instance[each] for each in host.instances if each in by_instance
        }.values():
            group = _Group([*other.names, *group.names], other.instances | group.instances, other.series + group.series)
            del groups[id(other)]
        groups[id(group)] = group
        by_instance |= dict.fromkeys(group.instances, group)
    yield from groups.values()


def _packed_groups(groups: Iterable[_Group], room: float) -> Iterator[list[_Group]]:
    """Yield the groups in order, as many at a time as fit, and at least one."""
    own: list[_Group] = []
    for group in groups:
        if own and sum(each.series for each in own) + group.series > room:
            yield own
            own = []
        own.append(group)
    if own:
        yield own


def _segments(since_ms: int, until_ms: int, parts: int) -> Iterator[tuple[int, int]]:
    length = -(-(until_ms - since_ms) // parts)
    return ((start, min(start + length, until_ms)) for start in range(since_ms, until_ms, length))


_CONTEXT_MS = 5 * MINUTE_MS
"""Time that is read before a chunk: its first rows depend on it."""

_SERVERS_CONTEXT_MS = 15 * MINUTE_MS
"""The same for inference servers: counters are compared with the scrape before."""

_PACE_MS = HOUR_MS
"""Time that is read before a short chunk to find how often sources are scraped and read the driver."""

_PACE_KEPT_MS = 6 * HOUR_MS
"""Scrape intervals change, and a follower runs for months."""

_MOST_AT_ONCE = 2 * MOST_SAMPLES
"""Where a chunk has more samples than this, the remainder becomes a chunk of its own."""

_AHEAD = 1
_LOOK_S = 0.5
"""Time between two checks for a request to end."""


class ReadingStoppedError(Exception):
    """The reading was asked to end: the part of a window that is not in the lake yet is dropped."""


@dataclass(frozen=True)
class ReadChunk:
    """The result of a chunk; `samples` are those of the chunk itself, and its context."""

    chunk: Chunk
    hosts: tuple[Imported, ...]
    samples: int


@dataclass(frozen=True)
class SeenWindow:
    """Discovered hosts and metrics of a window, before its samples are read."""

    since_ms: int
    until_ms: int
    names: FoundNames
    hosts: tuple[FoundHost, ...]


class SiteReader:
    """Reads one server for some exporters; `close` ends its work."""

    def __init__(
        self, server: MetricsServer, source: ScrapedSource, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._server, self._stopped = server, stopped
        self._exporters, self._collect_ms = source.exporters, source.collect_ms
        self._paces: dict[Source, Pace] = {}
        self._paced: dict[str, int] = {}
        self._discovery = Discovery(server, source.exporters, source.match)
        self._chunker, self._servers_chunker = Chunker(), Chunker()
        self._pool = ThreadPoolExecutor(1, "scraped-chunks")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def names(self, since_ms: int, until_ms: int) -> FoundNames:
        """Return the metrics of known exporters that the server has in the window. Raises InputError."""
        return self._discovery.names(since_ms, until_ms)

    def look(self, since_ms: int, until_ms: int) -> SeenWindow:
        """Return the hosts with samples in the window, and their metrics. Raises InputError."""
        names = self._discovery.names(since_ms, until_ms)
        hosts = tuple(self._discovery.hosts(names, since_ms, until_ms))
        return SeenWindow(since_ms, until_ms, names, hosts)

    def labels(self, since_ms: int, until_ms: int) -> list[Labels]:
        """Return series of known metrics, and of those that look like a GPU's. Raises InputError, also if too many."""
        names = self._discovery.names(since_ms, until_ms)
        wanted = names.every | names.of_sites | names.of_servers
        known = self._server.series(self._discovery.selection(wanted).text, since_ms, until_ms) if wanted else []
        others = self._discovery.selection([]).like(GPU_LIKE)
        found = self._server.series(others, since_ms, until_ms)
        return [*known, *(each for each in found if each.get("__name__") not in wanted)]

    def servers(self, seen: SeenWindow) -> Iterator[tuple[Chunk, Samples]]:
        """Yield the samples of inference servers, with some time before each chunk, in order. Raises InputError."""
        names = seen.names.of_servers
        targets = self._discovery.servers(seen.names, seen.since_ms, seen.until_ms)
        for chunk in self._servers_chunker.chunks(targets, seen.since_ms, seen.until_ms) if targets else ():
            if self._stopped():
                raise ReadingStoppedError
            text = self._discovery.selection(names, chunk.instances).text
            found = joined(self._server.samples(text, chunk.since_ms - _SERVERS_CONTEXT_MS, chunk.until_ms))
            length_ms = chunk.until_ms - chunk.since_ms + _SERVERS_CONTEXT_MS
            self._servers_chunker.learn(found.frame.height, len(found.labels), length_ms)
            yield chunk, found

    def read(self, seen: SeenWindow) -> Generator[ReadChunk]:
        """Yield a window's chunks in order. Raises InputError, and ReadingStoppedError soon after a stop request."""
        chunks = deque(self._chunker.chunks(seen.hosts, seen.since_ms, seen.until_ms))
        series = {host.name: host.series for host in seen.hosts}
        asked: deque[tuple[Chunk, Future[ReadChunk]]] = deque()
        try:
            while chunks or asked:
                while chunks and len(asked) <= _AHEAD:
                    asked.append(self._request(chunks.popleft(), seen))
                whole, future = asked.popleft()
                done = self._result(future)
                chunk = done.chunk
                if chunk.until_ms < whole.until_ms:
                    asked.appendleft(self._request(whole.part(chunk.until_ms, whole.until_ms), seen))
                own = sum(series[name] for name in chunk.hosts)
                self._chunker.learn(done.samples, own, chunk.until_ms - chunk.since_ms)
                yield done
        finally:
            for _, future in asked:
                future.cancel()

    def _request(self, chunk: Chunk, seen: SeenWindow) -> tuple[Chunk, Future[ReadChunk]]:
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
        parts, is_whole = _parts_at_once(self._server.samples(selection.text, since_ms, chunk.until_ms), chunk.since_ms)
        samples = joined(parts)
        if not samples.labels:
            return ReadChunk(chunk, (), 0)
        if not is_whole:
            chunk = chunk.part(chunk.since_ms, int(str(parts[-1].frame["time_ms"].max())) + 1)
        if is_due:
            self._find_paces(chunk, samples)
        settings = RowSettings(chunk.since_ms, chunk.until_ms, self._collect_ms, self._paces if is_short else {})
        rows = host_rows(samples, self._exporters, settings)
        own = int((samples.frame["time_ms"] >= chunk.since_ms).sum())
        return ReadChunk(chunk, tuple(rows), own)

    def _find_paces(self, chunk: Chunk, samples: Samples) -> None:
        """Find the paces of targets.

        A known pace stays where this shows nothing: values did not change, or the target has just begun. Targets that
        have just begun are examined again with the next window.
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


def _parts_at_once(parts: Iterable[Samples], since_ms: int) -> tuple[list[Samples], bool]:
    """Return as many parts, by time, as memory allows, some of them after `since_ms`; and whether these are all."""
    taken, number = [], 0
    for part in parts:
        taken.append(part)
        number += part.frame.height
        if number > _MOST_AT_ONCE and int(str(part.frame["time_ms"].max())) >= since_ms:
            return taken, False
    return taken, True


def joined(parts: Iterable[Samples]) -> Samples:
    """Return parts of one selector joined: each series once, its samples in order of time."""
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    labels: list[Labels] = []
    frames = [pl.DataFrame(schema=SAMPLE_SCHEMA)]
    for part in parts:
        own = []
        for each in part.labels:
            key = tuple(sorted(each.items()))
            if key not in numbers:
                numbers[key] = len(labels)
                labels.append(each)
            own.append(numbers[key])
        moved = pl.Series(own, dtype=pl.UInt32).gather(part.frame["series"])
        frames.append(part.frame.with_columns(series=moved))
    frame = pl.concat(frames)
    return Samples(tuple(labels), frame.sort("series", "time_ms") if len(frames) > 2 else frame)
