"""The OTLP/HTTP server: takes metrics at /v1/metrics, plain or gzip and never larger than allowed, and answers when they are safe."""

from __future__ import annotations

import hmac
import re
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, overload

from analytics.scraped.otlp.messages import JSON, PROTOBUF, accepted, read_request, refused, sort_out
from analytics.scraped.otlp.spool import RequestSpool
from analytics.scraped.service import BoundedHandler, BoundedServer
from fallow.clock import Clock
from fallow.errors import InputError, SpoolError
from fallow.output import say

_GZIP = 16 + zlib.MAX_WBITS
_LONGEST_LINE = 1024
_LONGEST_LENGTH = 16
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(;.*)?\r?\n", re.DOTALL)
PATIENCE_S = 30.0
_MOST_TRAILERS = 16


class Headers(Protocol):
    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, default: str, /) -> str: ...


class ByteStream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class RefusedRequestError(Exception):
    """A request that is not taken: the status and why; `retry_after_s` where the sender should come again."""

    def __init__(self, status: HTTPStatus, why: str, retry_after_s: int | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.retry_after_s = status, why, retry_after_s


def read_body(
    stream: ByteStream, headers: Headers, most_bytes: int, monotonic_s: Callable[[], float] = time.monotonic
) -> bytes:
    """The body, unpacked. Raises RefusedRequestError, and OSError where the sender is gone."""
    body = _Body(stream, most_bytes, monotonic_s)
    if (coding := headers.get("Transfer-Encoding")) is not None:
        if coding.lower() != "chunked" or headers.get("Content-Length") is not None:
            # RFC 9112, section 6.1: a proxy in front may see another end of the body
            why = "Transfer-Encoding has to be chunked, without a Content-Length beside it"
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, why)
        found = body.of_chunks()
    else:
        found = body.of_length(headers.get("Content-Length", ""))
    encoding = headers.get("Content-Encoding", "identity").lower()
    if encoding == "gzip":
        return _unpacked(found, most_bytes)
    if encoding != "identity":
        raise RefusedRequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the encoding {encoding} is not known; use gzip or none"
        )
    return found


class _Body:
    """Reads from the stream what belongs to the body, for PATIENCE_S at most: a sender that trickles keeps others out."""

    def __init__(self, stream: ByteStream, most_bytes: int, monotonic_s: Callable[[], float]) -> None:
        self._stream, self._most_bytes, self._monotonic_s = stream, most_bytes, monotonic_s
        self._deadline_s = monotonic_s() + PATIENCE_S

    def of_length(self, length: str) -> bytes:
        if not (length.isascii() and length.isdecimal()):
            raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED, "the request names no length, and is not chunked")
        if len(length) > _LONGEST_LENGTH or int(length) > self._most_bytes:
            raise _too_large(self._most_bytes)
        return self._exactly(int(length))

    def of_chunks(self) -> bytes:
        found = bytearray()
        while size := _chunk_size(self._line()):
            if len(found) + size > self._most_bytes:
                raise _too_large(self._most_bytes)
            found += self._exactly(size)
            self._exactly(2)  # the line's end
        for _ in range(_MOST_TRAILERS):
            if not self._line().strip():
                break
        return bytes(found)

    def _line(self) -> bytes:
        """Byte for byte: whoever waits for the whole line waits as long as the sender likes."""
        found = b""
        while not found.endswith(b"\n") and len(found) < _LONGEST_LINE:
            found += self._exactly(1)
        return found

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._stream.read1(size - len(found))
            if not piece:
                raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the body ends before its length")
            found += piece
            if self._monotonic_s() > self._deadline_s:
                raise RefusedRequestError(HTTPStatus.REQUEST_TIMEOUT, f"the body took longer than {PATIENCE_S:.0f} s")
        return bytes(found)


def _chunk_size(line: bytes) -> int:
    if (found := _CHUNK_SIZE.fullmatch(line)) is None:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "a chunk of the body has no length")
    return int(found[1], 16)


def _unpacked(body: bytes, most_bytes: int) -> bytes:
    unpacking = zlib.decompressobj(_GZIP)
    try:
        found = unpacking.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the body is not gzip") from error
    if len(found) > most_bytes:
        raise _too_large(most_bytes)
    if not unpacking.eof:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the gzip body ends too early")
    return found


def _too_large(most_bytes: int) -> RefusedRequestError:
    return RefusedRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than otlp.max_body, {most_bytes} bytes; send smaller batches",
    )


PATH = "/v1/metrics"
RETRY_AFTER_S = 30
_BUSY_RETRY_S = 1
_CONNECTIONS = 2000
"""Open at a time, most of them between two pushes."""

_NO_ROOM = "there is no room for more until the lake takes rows again"
"""Without the path of the spool: whoever pushes may ask."""

_FINISH_S = 2.0
_PIECE_BYTES = 2**16
_LONGEST_REASON = 1000
_MOST_TOLD = 20
_AT_A_TIME = 16
"""Bodies that are read and unpacked, which takes memory."""


@dataclass
class IntakeTally:
    """What was received since the start; its counts are changed under `lock`."""

    requests: Counter[int] = field(default_factory=Counter)
    points: int = 0
    ignored: int = 0
    rejected: int = 0
    told: set[str] = field(default_factory=set)
    """Reasons of rejections that were told, some at most: whoever pushes can make up units."""

    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Intake:
    """What becomes of a request: names that are wanted, where it is kept, and how large it may be; `token` is empty where nobody need show one.

    `tell` hears of each new reason to reject a point: most senders do not look at that part of an answer.
    """

    spool: RequestSpool
    wanted: Collection[str]
    max_body_bytes: int
    clock: Clock
    token: str = ""
    tell: Callable[[str], None] = say
    tally: IntakeTally = field(default_factory=IntakeTally)
    turn: threading.Lock = field(default_factory=threading.Lock)
    """One body is read at a time: as messages it takes up to fifty times its room, and threads would only take turns."""

    def take(self, body: bytes, content_type: str) -> bytes:
        """Keeps what is of use and returns the answer. Raises RefusedRequestError."""
        try:
            with self.turn:
                found = sort_out(read_request(body, content_type), self.wanted, self.clock.now_ms())
                kept = found.request.SerializeToString()
                found.request.Clear()
        except InputError as error:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, error.message) from error
        if found.points:
            try:
                self.spool.append(kept)
            except SpoolError as error:
                raise RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, _NO_ROOM, RETRY_AFTER_S) from error
        with self.tally.lock:
            self.tally.points += found.points
            self.tally.ignored += found.ignored
            self.tally.rejected += found.rejected.total()
            news = sorted(set(found.rejected) - self.tally.told)[: _MOST_TOLD - len(self.tally.told)]
            self.tally.told.update(news)
        if news:
            self.tell(f"rejects points: {'; '.join(news)}")
        return accepted(content_type, found.rejected.total(), "; ".join(sorted(found.rejected))[:_LONGEST_REASON])


class OtlpReceiver(BoundedServer):
    """Listens from `start` to `close`."""

    def __init__(self, host: str, port: int, intake: Intake) -> None:
        """Raises FallowError where the address is taken or is not this host's."""
        remedy = "give --listen an address of this host with a free port"
        super().__init__((host, port), _Handler, _CONNECTIONS, remedy)
        self.intake = intake
        self.places = threading.BoundedSemaphore(_AT_A_TIME)

    @property
    def url(self) -> str:
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}{PATH}"


class _Handler(BoundedHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    server: OtlpReceiver

    def do_POST(self) -> None:  # noqa: N802  # the name that http.server looks for
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        try:
            status, answer, headers = HTTPStatus.OK, self._taken(kind), {}
        except RefusedRequestError as error:
            # what is left of the body would be read as the next request
            self.close_connection = True
            status, answer = error.status, refused(kind, error.why)
            headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
        self._answer(status, JSON if kind == JSON else PROTOBUF, answer, headers)
        if status is not HTTPStatus.OK:
            self._let_finish()

    def do_GET(self) -> None:  # noqa: N802  # the name that http.server looks for
        self.close_connection = True
        self._answer(
            HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", f"POST metrics to {PATH}\n".encode(), {"Allow": "POST"}
        )

    def _taken(self, kind: str) -> bytes:
        intake = self.server.intake
        if self.path != PATH:
            raise RefusedRequestError(HTTPStatus.NOT_FOUND, f"only metrics are taken here, at {PATH}")
        if "Origin" in self.headers:  # any page could have the browser of somebody on this host push
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, "what a browser sends is not taken")
        if intake.token and not self._is_known(intake.token):
            raise RefusedRequestError(HTTPStatus.UNAUTHORIZED, "show the token of otlp.token_file as a bearer token")
        if kind not in (PROTOBUF, JSON):
            raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {PROTOBUF} or {JSON}")
        if not self.server.places.acquire(blocking=False):
            raise RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at a time", _BUSY_RETRY_S)
        try:
            return intake.take(read_body(self.rfile, self.headers, intake.max_body_bytes), kind)
        finally:
            self.server.places.release()

    def _is_known(self, token: str) -> bool:
        scheme, _, shown = self.headers.get("Authorization", "").partition(" ")
        return (
            hmac.compare_digest(shown.strip().encode("latin-1", "replace"), token.encode())
            and scheme.lower() == "bearer"
        )

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str]) -> None:
        with self.server.intake.tally.lock:
            self.server.intake.tally.requests[status] += 1
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _let_finish(self) -> None:
        """Reads on for a moment: to a sender that is still sending, a connection that is closed says nothing of why."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        until_s = time.monotonic() + _FINISH_S
        while (left_s := until_s - time.monotonic()) > 0:
            self.connection.settimeout(left_s)
            if not self.rfile.read1(_PIECE_BYTES):
                return
