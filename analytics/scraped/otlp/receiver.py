"""The OTLP/HTTP server: takes metrics at /v1/metrics, and answers when they are safe."""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus

from analytics.scraped.bounded_server import BoundedHandler, BoundedServer
from analytics.scraped.otlp.messages import JSON, PROTOBUF, accepted, read_request, refused
from analytics.scraped.otlp.points import sort_out
from analytics.scraped.otlp.request_body import PATIENCE_S, RefusedRequestError, read_body
from analytics.scraped.otlp.spool import RequestSpool
from fallow.clock import Clock
from fallow.errors import InputError, SpoolError
from fallow.output import say

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
