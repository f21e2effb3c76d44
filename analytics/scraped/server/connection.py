"""A considerate connection to a metrics server: kept open, limited in rate, with bounded answers, and retries."""

from __future__ import annotations

import contextlib
import email.utils
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    DecodeError,
    HTTPError,
    IncompleteRead,
    LocationParseError,
    ProtocolError,
    ProxySchemeUnknown,
    ReadTimeoutError,
    SSLError,
)
from urllib3.response import HTTPResponse
from urllib3.util import make_headers, parse_url

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.answers import (
    HttpAnswer,
    OversizedAnswerError,
    broken_answer,
    no_connection,
    oversized_answer,
    refusal,
    silence,
    unreadable_answer,
)
from fallow import __version__
from fallow.config import Config
from fallow.errors import ConfigError


@dataclass(frozen=True)
class ServerLimits:
    """Counts, bytes and seconds; `rate` is requests per second."""

    concurrency: int = 4
    rate: float = 20.0
    attempts: int = 6
    """Attempts of one request if the server is busy or the connection broken: about a minute with the pauses."""

    connect_s: float = 10.0
    silence_s: float = 60.0
    """Longest time without a byte."""

    answer_s: float = 600.0
    """Longest time for a whole answer, even if its bytes arrive steadily."""

    answer_bytes: int = 32 * 2**20
    """Unpacked size. Half a million samples as JSON are 15 MB, labels of 10,000 series in Kubernetes another 7 MB."""

    series_bytes: int = 192 * 2**20
    """Unpacked size of a list of series."""

    piece_samples: int = 500_000
    """Target number of samples per request: 10 MB as a frame, and 150 MB while JSON is read."""

    most_series: int = 200_000
    """Most series of one selector."""

    most_labels: int = 500
    """Most labels of one series."""

    @classmethod
    def of(cls, config: Config) -> Self:
        return cls(concurrency=config.integer("prometheus.concurrency"), rate=config.number("prometheus.rate"))


class RequestPace:
    """At most `rate` requests per second; a pause that the server asks for applies to all requests."""

    def __init__(self, rate: float, now_s: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._apart_s, self._now_s, self._sleep = 1 / rate, now_s, sleep
        self._next_s = now_s()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when it is this caller's turn."""
        with self._lock:
            now_s = self._now_s()
            turn_s = max(now_s, self._next_s)
            self._next_s = turn_s + self._apart_s
        if turn_s > now_s:
            self._sleep(turn_s - now_s)

    def hold(self, pause_s: float) -> None:
        """Delay all turns by that many seconds from now."""
        with self._lock:
            self._next_s = max(self._next_s, self._now_s() + pause_s)


class GuardedHttp(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3 itself
        """Return the response. Raises TimeoutError, which urllib3 turns into a ReadTimeoutError."""
        with _cut_timer(self.sock, self.timeout):
            return super().getresponse()


class GuardedHttps(GuardedHttp, HTTPSConnection):
    """The same with TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = GuardedHttp


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = GuardedHttps


def guard(manager: PoolManager) -> PoolManager:
    """Return the manager, whose connections are guarded from now on."""
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return manager


@contextlib.contextmanager
def _cut_timer(sock: socket.socket, seconds: float | None) -> Iterator[None]:
    over = threading.Event()

    def cut() -> None:
        over.set()
        with contextlib.suppress(OSError):
            # not the method of a TLS socket, which would take its state away from under the reader
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds or 0, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


_BUSY = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 120.0
"""The longest pause, whatever a server asks for."""

_ALWAYS = {"User-Agent": f"fallow/{__version__}", "Accept-Encoding": "gzip"}
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_NO_FORM = {"Accept": "application/json"}


@dataclass(frozen=True)
class _Request:
    """A GET without a body."""

    path: str
    body: bytes | None
    headers: Mapping[str, str]
    most_bytes: int
    """Largest size of the answer."""


@dataclass(frozen=True)
class _Passing:
    """A failure that may pass on another attempt, as `error`; the server may state when."""

    error: Exception
    pause_s: float | None = None


class ServerConnection:
    """May be used by many threads; the caller sets the `attempts` of a request, fewer for probing than for reading."""

    def __init__(
        self,
        address: ServerAddress,
        limits: ServerLimits,
        sleep: Callable[[float], object] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address, self.limits = address, limits
        # a probe tries once more, because a kept connection may just have been closed
        self.attempts = min(2, limits.attempts)
        self._now_s = now_s
        self._over = threading.Event()
        self._pace = RequestPace(limits.rate, now_s, sleep or self._over.wait)
        self._places = threading.BoundedSemaphore(limits.concurrency)
        self._pool = _pool(address, limits)

    def close(self) -> None:
        """Close the connections; threads that still wait or read find theirs broken."""
        self._over.set()
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, path: str, fields: Mapping[str, str] | None, most_bytes: int | None = None) -> HttpAnswer:
        """Return a 2xx answer to a form, or to GET without one. Raises InputError for anything else."""
        body = None if fields is None else urlencode(fields).encode()
        answer = self._send(_Request(path, body, FORM if body else _NO_FORM, most_bytes or self.limits.answer_bytes))
        if error := refusal(answer, self.address):
            raise error
        return answer

    def get(self, path: str) -> HttpAnswer:
        return self._send(_Request(path, None, _NO_FORM, self.limits.answer_bytes))

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        return self._send(_Request(path, body, headers, self.limits.answer_bytes))

    def _send(self, request: _Request) -> HttpAnswer:
        """Return the server's final answer, after pauses where it was busy or the connection broke.

        Raises InputError where there is no answer, OversizedAnswerError where it is too long.
        """
        number = 0
        while isinstance(outcome := self._try_once(request), _Passing):
            number += 1
            if number >= self.attempts:
                raise outcome.error
            pause_s = _FIRST_PAUSE_S * 2 ** (number - 1) if outcome.pause_s is None else outcome.pause_s
            self._pace.hold(min(pause_s, _LONGEST_PAUSE_S))
        return outcome

    def _try_once(self, request: _Request) -> HttpAnswer | _Passing:
        self._pace.wait()
        if self._over.is_set():
            raise broken_answer(self.address)
        with self._places:
            try:
                answer = self._exchange(request)
            except ReadTimeoutError as error:
                raise silence(self.address, f"sent nothing for {self.limits.silence_s:g} s") from error
            except SSLError as error:
                raise no_connection(error, self.address) from error
            except DecodeError:
                return _Passing(unreadable_answer(self.address))
            except (IncompleteRead, ProtocolError):
                return _Passing(broken_answer(self.address))
            except HTTPError as error:
                return _Passing(no_connection(error, self.address))
        if answer.status not in _BUSY:
            return answer
        refused = refusal(answer, self.address)
        if refused is None or isinstance(refused, OversizedAnswerError):
            return answer
        return _Passing(refused, _asked_pause_s(answer.headers.get("retry-after", "")))

    def _exchange(self, request: _Request) -> HttpAnswer:
        response = self._pool.request(
            "GET" if request.body is None else "POST",
            self.address.url + request.path,
            body=request.body,
            headers={**_ALWAYS, **self.address.sent_headers(), **request.headers},
            preload_content=False,
            redirect=False,
            retries=False,
        )
        try:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(response.status, headers, self._body(response, request.most_bytes))
        except BaseException:
            response.close()  # the remaining bytes of the answer would be taken for the next one
            raise
        finally:
            response.release_conn()

    def _body(self, response: urllib3.BaseHTTPResponse, most_bytes: int) -> bytes:
        until_s = self._now_s() + self.limits.answer_s
        chunks, size = [], 0
        while chunk := response.read1(2**20):
            chunks.append(chunk)
            size += len(chunk)
            if size > most_bytes:
                raise oversized_answer(self.address, most_bytes)
            if self._over.is_set():
                raise broken_answer(self.address)
            if self._now_s() > until_s:
                raise silence(self.address, f"was not whole after {self.limits.answer_s:g} s")
        return b"".join(chunks)


def _asked_pause_s(text: str) -> float | None:
    """Return the seconds of a Retry-After header, which is a number of seconds or a date."""
    if text.strip().isdecimal():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _pool(address: ServerAddress, limits: ServerLimits) -> urllib3.PoolManager:
    """Return a pool through the proxy that the environment names, if any. Raises ConfigError where that is invalid."""
    parts = urlsplit(address.url)
    options: dict[str, Any] = {
        "maxsize": limits.concurrency,
        "timeout": urllib3.Timeout(connect=limits.connect_s, read=limits.silence_s),
        "ssl_context": address.tls() if parts.scheme == "https" else None,
    }
    proxy = getproxies().get(parts.scheme, "")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return guard(urllib3.PoolManager(**options))
    try:
        way = parse_url(proxy if "://" in proxy else f"http://{proxy}")
        login = make_headers(proxy_basic_auth=way.auth) if way.auth else {}
        return guard(urllib3.ProxyManager(way.url, proxy_headers=login, **options))
    except (LocationParseError, ProxySchemeUnknown) as error:
        raise ConfigError(
            f"the proxy of the variable {parts.scheme}_proxy cannot be used",
            f"give it as http://proxy.example.org:3128, or name {parts.hostname} in no_proxy",
        ) from error
