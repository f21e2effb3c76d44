"""The OTLP/HTTP server: receives metrics at /v1/metrics, plain or gzip, within a size limit; answers once stored."""

from __future__ import annotations

import re
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Protocol

from analytics.scraped.otlp.messages import JSON, PROTOBUF, accepted, read_request, refused, sort_out
from analytics.scraped.otlp.spool import RequestSpool
from fallow.clock import Clock
from fallow.errors import InputError, SpoolError
from fallow.http_access import Token
from fallow.http_server import ConnectionBounds, HttpServer, Request, RequestError, Response, text_response
from fallow.output import say

_GZIP = 16 + zlib.MAX_WBITS
_LONGEST_LINE = 1024
_LONGEST_LENGTH = 16
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(;.*)?\r?\n", re.DOTALL)
_MOST_TRAILERS = 16


class ByteStream(Protocol):
    def read(self, most: int, /) -> bytes: ...


def read_body(stream: ByteStream, headers: Mapping[str, str], most_bytes: int) -> bytes:
    """Return the unpacked body; `headers` have lower-case names. Raises RequestError, OSError if the sender left."""
    if (coding := headers.get("transfer-encoding")) is not None:
        if coding.lower() != "chunked" or "content-length" in headers:
            # RFC 9112, section 6.1: a proxy in front may see another end of the body
            why = "Transfer-Encoding must be chunked, without a Content-Length"
            raise RequestError(HTTPStatus.BAD_REQUEST, why)
        found = _chunks(stream, most_bytes)
    else:
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdecimal()):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "the request states no length, and is not chunked")
        if len(length) > _LONGEST_LENGTH or int(length) > most_bytes:
            raise _size_error(most_bytes)
        found = _read_exactly(stream, int(length))
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding == "gzip":
        return _unpacked_body(found, most_bytes)
    if encoding != "identity":
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the encoding {encoding} is not known; use gzip or none")
    return found


def _chunks(stream: ByteStream, most_bytes: int) -> bytes:
    found = bytearray()
    while size := _chunk_size(_line(stream)):
        if len(found) + size > most_bytes:
            raise _size_error(most_bytes)
        found += _read_exactly(stream, size)
        _read_exactly(stream, 2)  # the line's end
    for _ in range(_MOST_TRAILERS):
        if not _line(stream).strip():
            break
    return bytes(found)


def _chunk_size(line: bytes) -> int:
    if (found := _CHUNK_SIZE.fullmatch(line)) is None:
        raise RequestError(HTTPStatus.BAD_REQUEST, "a chunk of the body has no length")
    return int(found[1], 16)


def _line(stream: ByteStream) -> bytes:
    found = b""
    while not found.endswith(b"\n") and len(found) < _LONGEST_LINE:
        found += _read_exactly(stream, 1)
    return found


def _read_exactly(stream: ByteStream, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        chunk = stream.read(size - len(found))
        if not chunk:
            raise RequestError(HTTPStatus.BAD_REQUEST, "the body ends before its length")
        found += chunk
    return bytes(found)


def _unpacked_body(body: bytes, most_bytes: int) -> bytes:
    unpacking = zlib.decompressobj(_GZIP)
    try:
        found = unpacking.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the body is not gzip") from error
    if len(found) > most_bytes:
        raise _size_error(most_bytes)
    if not unpacking.eof:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the gzip body ends too early")
    return found


def _size_error(most_bytes: int) -> RequestError:
    return RequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than otlp.max_body, {most_bytes} bytes; send smaller batches",
    )


PATH = "/v1/metrics"
RETRY_AFTER_S = 30
BOUNDS = ConnectionBounds(connections=16, per_address=12, head_s=10, body_s=30, answer_s=30, slow_s=10)
"""Few connections, as bodies take memory. A gateway pushes for a whole site: an address may have most, never all."""

_NO_ROOM = "there is no room for more until the lake takes rows again"
"""The message has no path of the spool, because any sender may read it."""

_LONGEST_REASON = 1000
_MOST_TOLD = 20


@dataclass
class IntakeTally:
    """Counts of received data since the start; they are changed under `lock`."""

    requests: Counter[int] = field(default_factory=Counter)
    points: int = 0
    ignored: int = 0
    rejected: int = 0
    reported: set[str] = field(default_factory=set)
    """Reported reasons of rejections, limited in number because any sender can invent units."""

    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Intake:
    """Rules for a request: the wanted names, the spool, the size limit, and the required token.

    `tell` receives each new reason to reject a point, because most senders ignore that part of an answer.
    """

    spool: RequestSpool
    wanted: Collection[str]
    max_body_bytes: int
    clock: Clock
    token: Token | None = None
    tell: Callable[[str], None] = say
    refused: Mapping[str, str] = field(default_factory=dict)
    """Names whose points are rejected, and why."""
    tally: IntakeTally = field(default_factory=IntakeTally)
    turn: threading.Lock = field(default_factory=threading.Lock)
    """One body is read at a time: as messages it takes up to 50 times its size, and threads would only take turns."""

    def take(self, body: bytes, content_type: str) -> bytes:
        """Keep the useful points and return the answer. Raises RequestError."""
        try:
            with self.turn:
                found = sort_out(read_request(body, content_type), self.wanted, self.clock.now_ms(), self.refused)
                kept = found.request.SerializeToString()
                found.request.Clear()
        except InputError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, error.message) from error
        if found.points:
            try:
                self.spool.append(kept)
            except SpoolError as error:
                retry = {"Retry-After": str(RETRY_AFTER_S)}
                raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, _NO_ROOM, retry) from error
        with self.tally.lock:
            self.tally.points += found.points
            self.tally.ignored += found.ignored
            self.tally.rejected += found.rejected.total()
            news = sorted(set(found.rejected) - self.tally.reported)[: _MOST_TOLD - len(self.tally.reported)]
            self.tally.reported.update(news)
        if news:
            self.tell(f"rejects points: {'; '.join(news)}")
        return accepted(content_type, found.rejected.total(), "; ".join(sorted(found.rejected))[:_LONGEST_REASON])


def otlp_receiver(address: tuple[str, int], intake: Intake) -> HttpServer:
    """Return the server of otlp.listen, not started."""
    remedy = "give --listen an address of this host with a free port"
    return HttpServer(address, partial(_respond, intake), "OTLP metrics", remedy, bounds=BOUNDS)


def _respond(intake: Intake, request: Request) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method != "POST":
        answer = text_response(HTTPStatus.METHOD_NOT_ALLOWED, f"POST metrics to {PATH}", {"Allow": "POST"})
    else:
        answered_kind = JSON if kind == JSON else PROTOBUF
        try:
            answer = Response(HTTPStatus.OK, answered_kind, _answer(intake, request, kind))
        except RequestError as error:
            answer = Response(error.status, answered_kind, refused(kind, error.why), error.headers)
    with intake.tally.lock:
        intake.tally.requests[answer.status] += 1
    return answer


def _answer(intake: Intake, request: Request, kind: str) -> bytes:
    if request.path != PATH:
        raise RequestError(HTTPStatus.NOT_FOUND, f"only metrics are accepted, at {PATH}")
    if "origin" in request.headers:  # any page could make a browser on this host push data
        raise RequestError(HTTPStatus.FORBIDDEN, "requests from browsers are not accepted")
    if intake.token is not None and not intake.token.allows(request.headers.get("authorization", "")):
        raise RequestError(HTTPStatus.UNAUTHORIZED, "show the token of otlp.token_file as a bearer token")
    if kind not in (PROTOBUF, JSON):
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {PROTOBUF} or {JSON}")
    return intake.take(read_body(request.body, request.headers, intake.max_body_bytes), kind)
