"""One HTTP/1 request and its answer on a socket, against a deadline: no more of HTTP than a scrape needs.

The standard library's server would cost the resident agent 7 MiB, and knows no deadline for a whole request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

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
