"""A metrics server that answers: what it is, its series, and their raw samples, each once."""

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
"""Names of those whose remote-read hands on what their API answers, without labels of their own."""


def _told(connection: ServerConnection, clock: Clock) -> tuple[HttpAnswer, int | None]:
    """What it answers to a number, which every server of this family knows, and how far its clock is ahead of ours, to a second or so.

    Raises InputError where no metrics server answers.
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
    """VictoriaMetrics names a version of Prometheus as its build, so its header counts more."""
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
    """The Date header is cut to whole seconds: half a second more is as often too much as too little."""
    try:
        server_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return None
    return round(server_s * 1000) + 500 - our_ms


_FIRST_MS = 5 * MINUTE_MS
_LONGEST_MS = 7 * DAY_MS
_SHORTEST_MS = SECOND_MS
_STRIDE = 8
"""By how much at most a piece is longer than the one before: samples may become dense again."""


class PieceLength:
    """How long a piece may be, learnt from those before: counting first would make the server decode everything twice."""

    def __init__(self, most_samples: int) -> None:
        self.ms = _FIRST_MS
        self.is_settled = False
        """Whether the last piece was of some size: what follows empty ones may be far too much, which is met one at a time."""
        self._most_samples = most_samples

    def learn(self, length_ms: int, samples: int) -> None:
        wanted_ms = length_ms * self._most_samples // max(samples, 1)
        self.ms = max(_SHORTEST_MS, min(max(wanted_ms, self.ms // _STRIDE), self.ms * _STRIDE, _LONGEST_MS))
        self.is_settled = samples * _STRIDE >= self._most_samples

    def shorten(self, length_ms: int) -> None:
        """After a refusal of that length."""
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
    """`read` over adjacent spans, in order of time, without empty ones; asks for half of a span that is refused for its size.

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
                _give_up(asked)  # those behind it are as long
                next_ms = start_ms
                continue
            length.learn(end_ms - start_ms, samples.frame.height)
            if samples.frame.height:
                yield samples
    finally:
        _give_up(asked)


def _give_up(asked: deque[tuple[int, int, Future[Samples]]]) -> None:
    for _, _, future in asked:
        future.cancel()
    asked.clear()


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
        answer, self._clock_offset_ms = _told(connection, clock)
        self.name = _name(connection, answer)
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
        _, self._clock_offset_ms = _told(self._connection, self._clock)
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
