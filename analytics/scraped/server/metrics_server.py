"""A metrics server that answers: its product, its series, and their raw samples, each once."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Protocol, Self
from urllib.parse import urlencode

import orjson

from analytics.scraped.samples import Labels, Samples
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.answers import HttpAnswer, OversizedAnswerError, api_data, no_metrics_server, refusal
from analytics.scraped.server.connection import FORM, ServerConnection, ServerLimits
from analytics.scraped.server.ways import (
    RAW,
    ExportLines,
    RangeVectors,
    RemoteRead,
    checked_labels,
    external_labels,
    seconds,
)
from fallow.clock import DAY_MS, MINUTE_MS, SECOND_MS, Clock, SystemClock
from fallow.outside_text import plain

VICTORIA = "VictoriaMetrics"
ADDS_NO_LABELS = ("Grafana Mimir", "Cortex")
"""Names of servers whose remote-read returns what their API answers, without labels of their own."""


def _first_answer(connection: ServerConnection, clock: Clock) -> tuple[HttpAnswer, int | None]:
    """Return the answer to a number, and how many milliseconds the server's clock is ahead, to about a second.

    Every server of this family answers such a query. The offset is None if the server does not state its time. Raises
    InputError where no metrics server answers.
    """
    before_ms = clock.now_ms()
    answer = connection.post("/api/v1/query", b"query=1", FORM)
    between_ms = (before_ms + clock.now_ms()) // 2
    if error := refusal(answer, connection.address):
        raise error
    data = api_data(answer.body, connection.address, lambda _: None)
    if not isinstance(data, dict) or data.get("resultType") not in {"scalar", "vector"}:
        raise no_metrics_server(connection.address)
    return answer, _offset_ms(answer, between_ms)


def _name(connection: ServerConnection, first: HttpAnswer) -> str:
    """Return the server's name. VictoriaMetrics reports a Prometheus build, so its header counts more."""
    if "x-server-hostname" in first.headers:
        return VICTORIA
    build = _build(connection)
    version = plain(str(build.get("version", "")), 40).partition("+")[0]
    if application := build.get("application"):
        return f"{plain(str(application), 40)} {version}".strip()
    if not version:
        return "a server with Prometheus' API"
    return f"Thanos {version}" if re.match(r"v?0\.", version) else f"Prometheus {version}"


def _build(connection: ServerConnection) -> dict[str, object]:
    answer = connection.get("/api/v1/status/buildinfo")
    try:
        data = orjson.loads(answer.body)["data"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return data if isinstance(data, dict) else {}


def _offset_ms(answer: HttpAnswer, our_ms: int) -> int | None:
    """Return the clock offset (ms). The Date header has whole seconds, so half a second is added."""
    try:
        server_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return None
    return round(server_s * 1000) + 500 - our_ms


_FIRST_MS = 5 * MINUTE_MS
_LONGEST_MS = 7 * DAY_MS
_SHORTEST_MS = SECOND_MS
_STRIDE = 8
"""Largest factor by which a request is longer than the one before: samples may become dense again."""


class PieceLength:
    """The length of a request in time, learnt from earlier ones: to count first, the server would decode all twice."""

    def __init__(self, most_samples: int) -> None:
        self.ms = _FIRST_MS
        self.is_settled = False
        """Whether the last request had a certain size. After empty ones the next may be far too large, so requests are
        sent one at a time.
        """
        self._most_samples = most_samples

    def learn(self, length_ms: int, samples: int) -> None:
        wanted_ms = length_ms * self._most_samples // max(samples, 1)
        self.ms = max(_SHORTEST_MS, min(max(wanted_ms, self.ms // _STRIDE), self.ms * _STRIDE, _LONGEST_MS))
        self.is_settled = samples * _STRIDE >= self._most_samples

    def shorten(self, length_ms: int) -> None:
        self.ms = max(min(self.ms, length_ms // 2), _SHORTEST_MS)
        self.is_settled = False


def in_pieces(
    read: Callable[[int, int], Samples],
    since_ms: int,
    until_ms: int,
    *,
    length: PieceLength,
    pool: Executor,
    ahead: int,
) -> Iterator[Samples]:
    """Yield `read` over adjacent intervals, by time, without empty ones; an interval refused for its size is halved.

    Raises OversizedAnswerError where a second is refused.
    """
    asked: deque[tuple[int, int, Future[Samples]]] = deque()
    next_ms = since_ms
    try:
        while asked or next_ms < until_ms:
            while next_ms < until_ms and len(asked) < (ahead if length.is_settled else 1):
                end_ms = min(until_ms, next_ms + length.ms)
                asked.append((next_ms, end_ms, pool.submit(read, next_ms, end_ms)))
                next_ms = end_ms
            start_ms, end_ms, future = asked.popleft()
            try:
                samples = future.result()
            except OversizedAnswerError:
                if end_ms - start_ms <= _SHORTEST_MS:
                    raise
                length.shorten(end_ms - start_ms)
                _cancel_requests(asked)  # the requests after it are as long
                next_ms = start_ms
                continue
            length.learn(end_ms - start_ms, samples.frame.height)
            if samples.frame.height:
                yield samples
    finally:
        _cancel_requests(asked)


def _cancel_requests(asked: deque[tuple[int, int, Future[Samples]]]) -> None:
    for _, _, future in asked:
        future.cancel()
    asked.clear()


_MOST_WARNINGS = 20
_LONGEST_IN_URL = 7500


class WayOfReading(Protocol):
    """Raises InputError with a remedy, OversizedAnswerError where a shorter interval would do."""

    way: str

    def fetch(self, selector: str, since_ms: int, until_ms: int) -> bytes: ...

    def parse(self, body: bytes, since_ms: int, until_ms: int) -> Samples: ...


class MetricsServer:
    """A metrics server such as Prometheus, from which the importers read series and raw samples.

    Several threads may share an instance; `close` ends its connections. Every method raises InputError with a remedy.
    """

    name: str
    """Product and version, such as "Prometheus 2.42.0"."""

    def __init__(self, connection: ServerConnection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._warnings: dict[str, None] = {}
        answer, self._clock_offset_ms = _first_answer(connection, clock)
        self.name = _name(connection, answer)
        self._way = self._fastest_way()
        if connection.address.is_overheard:
            self._tell(f"the login at {connection.address.url} travels unencrypted: use https if the server has it")
        self._pool = ThreadPoolExecutor(connection.limits.concurrency, "metrics-server")
        self._length = PieceLength(connection.limits.piece_samples)
        self._parsing = threading.Lock()
        connection.attempts = connection.limits.attempts

    @classmethod
    def connect(cls, address: ServerAddress, limits: ServerLimits | None = None, clock: Clock | None = None) -> Self:
        """Return the server, after a few small queries. Raises InputError where no metrics server answers there."""
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
        """Return how samples are read: "remote-read", "VictoriaMetrics export" or "range vectors"."""
        return self._way.way

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings about the server and its answers so far, as sentences, each once."""
        return tuple(self._warnings)

    def clock_offset_ms(self) -> int | None:
        """Return how far the server's clock is ahead of ours, to about a second; None if it does not state its time."""
        return self._clock_offset_ms

    def measured_offset_ms(self) -> int | None:
        """Return a new measurement of the offset: clocks are set while a service runs."""
        _, self._clock_offset_ms = _first_answer(self._connection, self._clock)
        return self._clock_offset_ms

    def series(self, selector: str, since_ms: int, until_ms: int) -> list[Labels]:
        """Return the series that may have samples in the window: servers answer by the block or the day.

        Raises OversizedAnswerError for over `limits.most_series`, InputError for one with over `limits.most_labels`.
        """
        limits = self._connection.limits
        window = {"start": seconds(since_ms), "end": seconds(until_ms - 1), "limit": str(limits.most_series + 1)}
        found = self._api("/api/v1/series", {"match[]": selector, **window, **RAW}, limits.series_bytes)
        if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
            raise no_metrics_server(self._connection.address)
        if len(found) > limits.most_series:
            raise OversizedAnswerError(
                f"more than {limits.most_series:,} series match {plain(selector, 120)}",
                "narrow them with --match, such as one cluster or some hosts at a time",
            )
        return [checked_labels(each, limits.most_labels) for each in found]

    def names(self, selector: str, since_ms: int, until_ms: int) -> list[str]:
        """Return the metrics of the selector's series, like `series` but cheap however many they are.

        This query can only be in a URL, which proxies cut at 8 kB: with a longer selector it costs as much as `series`.
        """
        window = {"start": seconds(since_ms), "end": seconds(until_ms - 1)}
        question = urlencode({"match[]": selector, **window, **RAW})
        if len(question) > _LONGEST_IN_URL:
            return sorted({each.get("__name__", "") for each in self.series(selector, since_ms, until_ms)})
        return [str(each) for each in self._api(f"/api/v1/label/__name__/values?{question}", None) or ()]

    def samples(self, selector: str, since_ms: int, until_ms: int) -> Iterator[Samples]:
        """Yield raw samples with since_ms <= time < until_ms, in parts of about `limits.piece_samples`.

        Samples come once each, in order of time. Every answer repeats the labels: ask for some ten thousand series at a
        time. A few parts are requested ahead, so read from few iterators at a time. Samples that the server holds twice
        (two replicas write one series) come twice.
        """
        ahead = self._connection.limits.concurrency
        read = partial(self._read, selector)
        return in_pieces(read, since_ms, until_ms, length=self._length, pool=self._pool, ahead=ahead)

    def _read(self, selector: str, since_ms: int, until_ms: int) -> Samples:
        """Return the samples of one answer; unpacked it is large, so only one is read at a time."""
        body = self._way.fetch(selector, since_ms, until_ms)
        with self._parsing:
            return self._way.parse(body, since_ms, until_ms)

    def _api(self, path: str, fields: Mapping[str, str] | None, most_bytes: int | None = None) -> Any:
        answer = self._connection.ask(path, fields, most_bytes)
        return api_data(answer.body, self._connection.address, self._tell)

    def _tell(self, warning: str) -> None:
        if len(self._warnings) < _MOST_WARNINGS:
            self._warnings[warning] = None

    def _fastest_way(self) -> WayOfReading:
        export = ExportLines(self._connection)
        if export.is_offered():
            return export
        if RemoteRead(self._connection).is_offered():
            added = frozenset() if self.name.startswith(ADDS_NO_LABELS) else external_labels(self._connection)
            if added is not None:
                return RemoteRead(self._connection, added)
        return RangeVectors(self._connection, self._tell, nan_is_stale=self.name == VICTORIA)
