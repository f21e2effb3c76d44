"""The HTTP server of the agent and of the followers: one request per connection, each step with a deadline.

It supports the part of HTTP/1 that scrapes, health checks and pushes need. The standard library's server would cost the
agent 7 MiB and has no deadline for a whole request. If all connections are in use, fallow's server closes those that
block others.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fallow.clock import seconds_left
from fallow.errors import ConfigError, FallowError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fallow.exposition import ExposedSamples
    from fallow.http_access import Certificate, Token

log = logging.getLogger("fallow.http")

_LOOPBACK = "127.0.0.1"
_LISTEN = re.compile(r"(?:(?:\[(?P<v6>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\[\]:\s]*)):)?(?P<port>\d{1,5})")


def parse_listen(text: str, setting: str) -> tuple[str, int]:
    """Return host and port of `9477`, `:9477` (both loopback), `0.0.0.0:9477` or `[::1]:9477`; raises ConfigError."""
    match = _LISTEN.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(
            f"{setting} is '{text}', which is not an address",
            "write address:port, such as 127.0.0.1:9477 or [::1]:9477",
        )
    return match["v6"] or match["host"] or _LOOPBACK, int(match["port"])


def is_of_this_host(host: str) -> bool:
    """Return whether only this host can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_LONGEST_HEAD = 1 << 14
_PIECE_BYTES = 1 << 16
_MOST_DRAINED = 1 << 26
_DRAIN_S = 2.0


class RequestError(Exception):
    """A refused request: the status, the reason, and further headers of the response."""

    def __init__(self, status: HTTPStatus, why: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why or status.phrase)
        self.status, self.why, self.headers = status, why or status.phrase, headers or {}


class RequestBody:
    """The body of a request, read on demand."""

    def __init__(self, connection: socket.socket, received: bytes, patience_s: float, *, is_awaited: bool) -> None:
        """`is_awaited` is true if the client waits for `100 Continue`."""
        self._connection, self._received = connection, received
        self._deadline_s = time.monotonic() + patience_s
        self._patience_s = patience_s
        self._is_awaited = is_awaited

    def read(self, most: int) -> bytes:
        """Return up to `most` bytes, none at the end of the body. Raises RequestError at the deadline."""
        if self._received:
            found, self._received = self._received[:most], self._received[most:]
            return found
        try:
            self._connection.settimeout(seconds_left(self._deadline_s))
            if self._is_awaited:
                self._is_awaited = False
                self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            return self._connection.recv(min(most, _PIECE_BYTES))
        except TimeoutError as error:
            why = f"the body took longer than {self._patience_s:g} s"
            raise RequestError(HTTPStatus.REQUEST_TIMEOUT, why) from error


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    """By name in lower case."""
    body: RequestBody


@dataclass(frozen=True)
class Response:
    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def text_response(status: HTTPStatus, text: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a line of text, by default the meaning of the status."""
    return Response(status, "text/plain; charset=utf-8", f"{text or status.phrase}\n".encode(), headers or {})


def _read_request(connection: socket.socket, deadline_s: float, body_s: float) -> Request:
    """Return the request after its head is read. Raises RequestError; OSError at the deadline, even if bytes arrive."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        if len(received) > _LONGEST_HEAD:
            raise RequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        connection.settimeout(seconds_left(deadline_s))
        piece = connection.recv(4096)
        if not piece:
            raise ConnectionError("the client closed the connection")
        received += piece
    head, _, rest = bytes(received).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise RequestError(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RequestError(HTTPStatus.BAD_REQUEST)
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    is_awaited = headers.get("expect", "").lower() == "100-continue"
    body = RequestBody(connection, rest, body_s, is_awaited=is_awaited)
    return Request(words[0], words[1].partition("?")[0], headers, body)


def _send_response(connection: socket.socket, response: Response, deadline_s: float, *, head_only: bool) -> None:
    """Send the response. Raises OSError at the deadline, even for a slow client."""
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        **response.headers,
    }
    status = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"
    head = "\r\n".join([status, *(f"{name}: {value}" for name, value in headers.items()), "", ""])
    left = memoryview(head.encode("latin-1") + (b"" if head_only else response.body))
    while left:
        connection.settimeout(seconds_left(deadline_s))
        left = left[connection.send(left) :]


def _drain(connection: socket.socket) -> None:
    """Read the rest of the request, such as a body: closing earlier could discard the response."""
    connection.shutdown(socket.SHUT_WR)
    deadline_s, received = time.monotonic() + _DRAIN_S, 0
    while received < _MOST_DRAINED:
        connection.settimeout(seconds_left(deadline_s))
        piece = connection.recv(_PIECE_BYTES)
        if not piece:
            return
        received += len(piece)


@dataclass(frozen=True)
class ConnectionBounds:
    """Limits for the number of connections, and for the time of each step."""

    connections: int = 8
    """Most concurrent connections; each has a thread."""
    per_address: int = 4
    head_s: float = 3.0
    """Time for the handshake and the head of the request; a normal client sends both at once."""
    body_s: float = 3.0
    answer_s: float = 5.0
    slow_s: float = 2.0
    """Time after its admission in which a connection cannot be replaced by another."""


@dataclass(eq=False)
class OpenConnection:
    socket: socket.socket
    """The socket; another object after encryption."""
    address: str
    since_s: float
    is_served: bool = False
    """True from the end of the request's head to the end of the response."""
    is_closed: bool = field(default=False, repr=False)
    """True if it was closed to make room for another connection."""


class Connections:
    """Admits connections up to a limit, and closes connections that block others, first idle and then slow connections.

    A normal client sends its request at once, so that the longest idle connection without a request can be closed.
    """

    def __init__(self, bounds: ConnectionBounds, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        self._monotonic_s = monotonic_s
        self._open: list[OpenConnection] = []  # oldest first
        self._lock = threading.Lock()
        self.ended = threading.Event()
        """Set whenever a connection ends."""

    def __len__(self) -> int:
        return len(self._open)

    def has_room(self) -> bool:
        """Return whether another connection can be admitted; may close a connection to make room."""
        with self._lock:
            self.ended.clear()
            return len(self._open) < self._bounds.connections or self._close_one(self._open)

    def admit(self, connection: socket.socket, address: str) -> OpenConnection | None:
        """Add and return a connection after `has_room`; None if its address already uses its whole share."""
        with self._lock:
            own = [each for each in self._open if each.address == address]
            if len(own) >= self._bounds.per_address and not self._close_one(own):
                return None
            admitted = OpenConnection(connection, address, self._monotonic_s())
            self._open.append(admitted)
            return admitted

    def end(self, connection: OpenConnection) -> None:
        with self._lock:
            if not connection.is_closed:
                self._open.remove(connection)
            self.ended.set()

    def _close_one(self, among: list[OpenConnection]) -> bool:
        """Close a connection, whatever its thread waits for; return False if none may be closed."""
        slow_s = self._monotonic_s() - self._bounds.slow_s
        closed = next((each for each in among if not each.is_served), None)
        closed = closed or next((each for each in among if each.since_s < slow_s), None)
        if closed is None:
            return False
        closed.is_closed = True
        self._open.remove(closed)
        with contextlib.suppress(OSError):  # the client has just gone
            # not the encrypted socket's own method, which would take its state away from the thread that uses it
            socket.socket.shutdown(closed.socket, socket.SHUT_RDWR)
        return True


_BACKLOG = 1024  # a burst of connections must not make an honest one wait for a second try of its kernel
_FULL_S = 0.1  # between two looks for room
_PAUSE_S = 1.0  # after an accept that failed, as when descriptors have run out


class HttpServer:
    """An HTTP server with its own threads, which answers from `start` to `close`."""

    def __init__(
        self,
        address: tuple[str, int],
        respond: Callable[[Request], Response],
        what: str,
        remedy: str,
        *,
        bounds: ConnectionBounds | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        """Port 0 lets the system choose. `what` and `remedy`: subject and hint of the error for an unusable address."""
        self._address, self._respond, self._what, self._remedy = address, respond, what, remedy
        self._bounds = bounds or ConnectionBounds()
        self._certificate = certificate
        self._connections = Connections(self._bounds)
        self._socket: socket.socket | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept_all, name="http", daemon=True)

    def start(self) -> None:
        """Start to listen. Raises FallowError if the address is in use or not this host's; a later call may succeed."""
        host, port = self._address
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            both = str(address[0]) == "::" and socket.has_dualstack_ipv6()
            self._socket = socket.create_server(
                (str(address[0]), port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
            )
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no resolver can be asked for
            why = getattr(error, "strerror", None) or error
            raise FallowError(f"cannot listen on {host}:{port} for {self._what}: {why}", self._remedy) from error
        self._thread.start()
        log.info("%s on %s", self._what, self.url)

    def close(self) -> None:
        """Stop listening; open connections end within their limits."""
        if self._socket is not None:
            self._closing.set()
            self._socket.shutdown(socket.SHUT_RDWR)  # accept() returns with an error
            self._thread.join()
            self._socket.close()
            self._socket = None

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self._address[0]}]" if ":" in self._address[0] else self._address[0]
        return f"{'http' if self._certificate is None else 'https'}://{host}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    @property
    def _listening(self) -> socket.socket:
        if self._socket is None:
            raise RuntimeError("start() comes first")
        return self._socket

    def _accept_all(self) -> None:
        while not self._closing.is_set():
            try:
                connection, peer = self._listening.accept()
            except OSError as error:
                if not self._closing.is_set():
                    log.warning("%s: cannot accept a connection: %s", self._what, error.strerror)
                    self._closing.wait(_PAUSE_S)
                continue
            while not (has_room := self._connections.has_room()) and not self._closing.is_set():
                self._connections.ended.wait(_FULL_S)  # all are being answered
            if has_room:
                self._serve_in_thread(connection, str(peer[0]))
            else:
                connection.close()

    def _serve_in_thread(self, connection: socket.socket, address: str) -> None:
        """Serve the connection in a thread; closes it at once if its address exceeds its share."""
        admitted = self._connections.admit(connection, address)
        if admitted is None:
            connection.close()
            return
        try:
            threading.Thread(target=self._serve, args=(admitted,), name="http-request", daemon=True).start()
        except RuntimeError:  # no thread can be had
            self._connections.end(admitted)
            connection.close()

    def _serve(self, connection: OpenConnection) -> None:
        try:
            with contextlib.suppress(OSError):  # a client that disconnects or is too slow is dropped
                self._converse(connection)
        except Exception:
            log.exception("%s: a connection failed", self._what)
        finally:
            self._connections.end(connection)
            connection.socket.close()

    def _converse(self, admitted: OpenConnection) -> None:
        deadline_s = time.monotonic() + self._bounds.head_s
        admitted.socket.settimeout(self._bounds.head_s)
        if self._certificate is not None:
            self._certificate.encrypt(admitted)
        connection = admitted.socket
        head_only = False
        try:
            request = _read_request(connection, deadline_s, self._bounds.body_s)
            admitted.is_served = True
            head_only = request.method == "HEAD"
            response = self._answer(request)
        except RequestError as error:
            response = text_response(error.status, error.why, error.headers)
        _send_response(connection, response, time.monotonic() + self._bounds.answer_s, head_only=head_only)
        admitted.is_served = False
        _drain(connection)

    def _answer(self, request: Request) -> Response:
        """Return the response of the handler; status 500 and a log entry if it fails. Raises RequestError."""
        try:
            return self._respond(request)
        except (RequestError, ConnectionError):  # a client that disconnects while its body is read
            raise
        except Exception:
            log.exception("%s: a request failed", self._what)
            return text_response(HTTPStatus.INTERNAL_SERVER_ERROR)


@dataclass(frozen=True)
class MetricsPages:
    """/metrics and /healthz of a service, and / with links to them."""

    service: str
    health: Callable[[], tuple[int, dict[str, Any]]]
    """Returns the HTTP status and the JSON of the response."""
    metrics: Callable[[], ExposedSamples] | None
    """None if only /healthz is served."""
    token: Token | None = None
    """The token for /metrics; /healthz needs none, because a kubelet has none."""

    def respond(self, request: Request) -> Response:
        if request.path not in ("/", "/healthz") + (() if self.metrics is None else ("/metrics",)):
            raise RequestError(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        if request.path == "/healthz":
            status, answer = self.health()
            return Response(status, "application/json", json.dumps(answer).encode() + b"\n")
        if request.path == "/" or self.metrics is None:
            metrics = "" if self.metrics is None else "/metrics for Prometheus, "
            return text_response(HTTPStatus.OK, f"{self.service}: {metrics}/healthz for health checks")
        if self.token is not None and not self.token.allows(request.headers.get("authorization", "")):
            raise RequestError(HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": 'Bearer realm="fallow"'})
        from fallow.exposition import negotiate  # where only /healthz is served it is never needed

        content_type = negotiate(request.headers.get("accept", ""))
        return Response(HTTPStatus.OK, content_type, self.metrics().render(content_type))
