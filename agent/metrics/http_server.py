"""One HTTP/1 request and its answer on a socket, where the server listens, and which connections are open.

No more of HTTP than a scrape needs, against a deadline: the standard library's server would cost the resident agent 7 MiB, and
knows no deadline for a whole request.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from fallow.errors import ConfigError
from fallow.listen_address import is_of_this_host, parse_listen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fallow.config import Config


@dataclass(frozen=True)
class MetricsSettings:
    host: str
    port: int
    """0 lets the system choose."""
    token_file: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    health_only: bool = False
    """Answers /healthz and nothing else; without token and TLS, which a kubelet does not have."""

    @classmethod
    def from_config(cls, config: Config) -> MetricsSettings:
        """The settings; raises ConfigError for an address that is none and for half a TLS setting."""
        host, port = parse_listen(config.text("metrics.listen"), "metrics.listen")
        certificate, key = config.text("metrics.tls_certificate"), config.text("metrics.tls_key")
        if bool(certificate) != bool(key):
            missing = "metrics.tls_key" if certificate else "metrics.tls_certificate"
            raise ConfigError(f"{missing} is not set", "TLS needs both metrics.tls_certificate and metrics.tls_key")
        return cls(host, port, config.text("metrics.token_file"), certificate, key)

    @classmethod
    def for_health(cls, config: Config) -> MetricsSettings:
        """The settings of the address for /healthz alone; raises ConfigError for one that is none."""
        return cls(*parse_listen(config.text("metrics.health_listen"), "metrics.health_listen"), health_only=True)

    @property
    def setting(self) -> str:
        """The setting that the address comes from."""
        return "metrics.health_listen" if self.health_only else "metrics.listen"

    @property
    def what(self) -> str:
        return "/healthz" if self.health_only else "/metrics and /healthz"

    @property
    def loopback(self) -> bool:
        return is_of_this_host(self.host)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_certificate else 'http'}://{host}:{self.port}"


_LONGEST_HEAD = 1 << 14
_MOST_LEFT_OVER = 1 << 16


class BadRequestError(Exception):
    """An invalid request, with the status to answer."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True)
class Request:
    """The head of a request; a body is never read."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""


@dataclass(frozen=True)
class Response:
    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def read_request(connection: socket.socket, deadline_s: float) -> Request:
    """Reads the head; raises BadRequestError, or OSError at the deadline, however slowly the bytes drip in."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        if len(received) > _LONGEST_HEAD:
            raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        _set_deadline(connection, deadline_s)
        piece = connection.recv(4096)
        if not piece:
            raise ConnectionError("the client closed the connection")
        received += piece
    return parse_head(bytes(received.partition(b"\r\n\r\n")[0]))


def parse_head(head: bytes) -> Request:
    """The request in a head without its closing empty line; raises BadRequestError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(HTTPStatus.BAD_REQUEST)
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    return Request(words[0], words[1].partition("?")[0], headers)


def send_response(connection: socket.socket, response: Response, deadline_s: float, *, head_only: bool) -> None:
    """Sends the answer and reads what the client still sends; raises OSError at the deadline, however slowly it reads."""
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        **response.headers,
    }
    head = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        *(f"{n}: {v}" for n, v in headers.items()),
    ]
    left = memoryview("\r\n".join([*head, "", ""]).encode("latin-1") + (b"" if head_only else response.body))
    while left:
        _set_deadline(connection, deadline_s)
        left = left[connection.send(left) :]
    _drain(connection, deadline_s)


def _drain(connection: socket.socket, deadline_s: float) -> None:
    """Reads what the client still sends, such as a body: closing earlier could discard the answer."""
    connection.shutdown(1)  # SHUT_WR
    received = 0
    while received < _MOST_LEFT_OVER:
        _set_deadline(connection, min(deadline_s, time.monotonic() + 1))
        piece = connection.recv(4096)
        if not piece:
            return
        received += len(piece)


def _set_deadline(connection: socket.socket, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(left_s)


MOST = 8
"""Connections at a time; each has a thread of its own."""
SHARE = 4
"""Of those, for one address."""
SLOW_S = 2.0
"""How long an answer may take to be read before its connection has to go for another's sake."""


@dataclass(eq=False)
class OpenConnection:
    """One connection; `asked` once its request is whole."""

    socket: socket.socket
    """What is read and written: another object once it is encrypted."""
    address: str
    since_s: float
    asked: bool = False
    let_go: bool = field(default=False, repr=False)


class Connections:
    """Admits connections up to a limit, and lets those go that keep others out: idle ones first, then slow readers.

    A scrape sends its request at once. So the connection that has not sent one and has waited longest is nobody's loss.
    """

    def __init__(self, most: int = MOST, share: int = SHARE, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._share = share
        self._monotonic_s = monotonic_s
        self._open: list[OpenConnection] = []  # oldest first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def has_room(self) -> bool:
        """Whether another can be admitted, now that those who keep it out were let go."""
        with self._lock:
            return len(self._open) < self._most or self._let_one_go(self._open)

    def admit(self, connection: socket.socket, address: str) -> OpenConnection | None:
        """Takes a connection up; None where its address has its share and uses all of it.

        The caller has asked `has_room` and is the only one who admits.
        """
        with self._lock:
            own = [each for each in self._open if each.address == address]
            if len(own) >= self._share and not self._let_one_go(own):
                return None
            admitted = OpenConnection(connection, address, self._monotonic_s())
            self._open.append(admitted)
            return admitted

    def end(self, connection: OpenConnection) -> None:
        with self._lock:
            if not connection.let_go:
                self._open.remove(connection)

    def _let_one_go(self, among: list[OpenConnection]) -> bool:
        """Shuts one of them, in the middle of whatever its thread waits for; whether there was one to let go."""
        slow_s = self._monotonic_s() - SLOW_S
        leaves = next((each for each in among if not each.asked), None)
        leaves = leaves or next((each for each in among if each.since_s < slow_s), None)
        if leaves is None:
            return False
        leaves.let_go = True
        self._open.remove(leaves)
        with contextlib.suppress(OSError):  # it has just gone by itself
            # not the encrypted socket's own method, which would take its state away from the thread that uses it
            socket.socket.shutdown(leaves.socket, socket.SHUT_RDWR)
        return True
