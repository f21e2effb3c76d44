"""A metrics server that answers: its series, and their raw samples, each once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, Self
from urllib.parse import urlencode

from analytics.scraped.samples import Labels, Samples
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.api_answers import api_data
from analytics.scraped.server.connection import ServerConnection
from analytics.scraped.server.export_lines import ExportLines
from analytics.scraped.server.external_labels import external_labels
from analytics.scraped.server.identity import ADDS_NO_LABELS, VICTORIA, identity, measured_offset_ms
from analytics.scraped.server.labelled import checked_labels
from analytics.scraped.server.limits import ServerLimits
from analytics.scraped.server.pieces import PieceLength, in_pieces
from analytics.scraped.server.range_vectors import RAW, RangeVectors, seconds
from analytics.scraped.server.refusals import OversizedAnswerError, no_metrics_server
from analytics.scraped.server.remote_read import RemoteRead
from fallow.clock import Clock, SystemClock
from fallow.outside_text import plain

_MOST_WARNINGS = 20
_LONGEST_IN_URL = 7500


class WayOfReading(Protocol):
    """Raises InputError with a remedy, OversizedAnswerError where a shorter span would do."""

    way: str

    def fetch(self, selector: str, since_ms: int, until_ms: int) -> bytes: ...

    def parse(self, body: bytes, since_ms: int, until_ms: int) -> Samples: ...


class MetricsServer:
    """May be used by many threads; `close` ends its connections. Every method raises InputError with a remedy."""

    name: str
    """Such as "Prometheus 2.42.0"."""

    def __init__(self, connection: ServerConnection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._told: dict[str, None] = {}
        found = identity(connection, clock)
        self.name, self._clock_offset_ms = found.name, found.clock_offset_ms
        self._way = self._fastest_way()
        if connection.address.is_overheard:
            self._tell(
                f"what logs in at {connection.address.url} goes there unencrypted: use https if the server has it"
            )
        self._pool = ThreadPoolExecutor(connection.limits.concurrency, "metrics-server")
        self._length = PieceLength(connection.limits.piece_samples)
        self._parsing = threading.Lock()
        connection.attempts = connection.limits.attempts

    @classmethod
    def connect(cls, address: ServerAddress, limits: ServerLimits | None = None, clock: Clock | None = None) -> Self:
        """Asks a handful of small questions; raises InputError where no metrics server answers there."""
        connection = ServerConnection(address, limits or ServerLimits())
        try:
            return cls(connection, clock or SystemClock())
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def way(self) -> str:
        """How samples are read: "remote-read", "VictoriaMetrics export" or "range vectors"."""
        return self._way.way

    @property
    def warnings(self) -> tuple[str, ...]:
        """What there is to know about the server and its answers so far, in sentences, each once."""
        return tuple(self._told)

    def clock_offset_ms(self) -> int | None:
        """How far the server's clock is ahead of ours, to about a second; None where it does not tell its time."""
        return self._clock_offset_ms

    def measured_offset_ms(self) -> int | None:
        """The same, asked for anew: clocks are set while a service runs."""
        self._clock_offset_ms = measured_offset_ms(self._connection, self._clock)
        return self._clock_offset_ms

    def series(self, selector: str, since_ms: int, until_ms: int) -> list[Labels]:
        """Those that may have samples in the window: servers answer by the block or the day.

        Raises OversizedAnswerError for more than `limits.most_series`, InputError for one with more than `limits.most_labels`.
        """
        limits = self._connection.limits
        window = {"start": seconds(since_ms), "end": seconds(until_ms - 1), "limit": str(limits.most_series + 1)}
        found = self._api("/api/v1/series", {"match[]": selector, **window, **RAW}, limits.series_bytes)
        if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
            raise no_metrics_server(self._connection.address)
        if len(found) > limits.most_series:
            raise OversizedAnswerError(
                f"more than {limits.most_series:,} series answer to {plain(selector, 120)}",
                "narrow them with --match, such as one cluster or some hosts at a time",
            )
        return [checked_labels(each, limits.most_labels) for each in found]

    def names(self, selector: str, since_ms: int, until_ms: int) -> list[str]:
        """The metrics that series of the selector have, as `series` but cheap however many they are.

        This question can only be in a URL, which proxies cut at 8 kB: with a longer selector it costs as much as `series`.
        """
        window = {"start": seconds(since_ms), "end": seconds(until_ms - 1)}
        question = urlencode({"match[]": selector, **window, **RAW})
        if len(question) > _LONGEST_IN_URL:
            return sorted({each.get("__name__", "") for each in self.series(selector, since_ms, until_ms)})
        return [str(each) for each in self._api(f"/api/v1/label/__name__/values?{question}", None) or ()]

    def samples(self, selector: str, since_ms: int, until_ms: int) -> Iterator[Samples]:
        """Raw samples with since_ms <= time < until_ms, each once, in order of time, in pieces of about `limits.piece_samples`.

        Every answer repeats the labels: ask for some ten thousand series at a time. A few pieces are asked for ahead,
        so take them from few iterators at a time. What the server holds twice (two replicas write one series) comes twice.
        """
        ahead = self._connection.limits.concurrency
        read = partial(self._read, selector)
        return in_pieces(read, since_ms, until_ms, length=self._length, pool=self._pool, ahead=ahead)

    def _read(self, selector: str, since_ms: int, until_ms: int) -> Samples:
        """What one answer unpacks to is large: one at a time."""
        body = self._way.fetch(selector, since_ms, until_ms)
        with self._parsing:
            return self._way.parse(body, since_ms, until_ms)

    def _api(self, path: str, fields: Mapping[str, str] | None, most_bytes: int | None = None) -> Any:
        answer = self._connection.ask(path, fields, most_bytes)
        return api_data(answer.body, self._connection.address, self._tell)

    def _tell(self, warning: str) -> None:
        if len(self._told) < _MOST_WARNINGS:
            self._told[warning] = None

    def _fastest_way(self) -> WayOfReading:
        export = ExportLines(self._connection)
        if export.is_offered():
            return export
        if RemoteRead(self._connection).is_offered():
            added = frozenset() if self.name.startswith(ADDS_NO_LABELS) else external_labels(self._connection)
            if added is not None:
                return RemoteRead(self._connection, added)
        return RangeVectors(self._connection, self._tell, nan_is_stale=self.name == VICTORIA)
