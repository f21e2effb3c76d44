"""HTTP/1.1 in little memory: what comes back over a connection, bounded in time and size.

`http.client` would cost the supervisor 5.4 MiB and `urllib.request` 7.2 MiB of resident memory; this costs none, for all
that it imports is loaded anyway.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

LARGEST_BYTES = 4 * 2**20
"""Of a body; the largest seen from a real server is a twentieth of it."""

_LARGEST_HEAD_BYTES = 2**15
_PIECE_BYTES = 2**16


class UnreachableError(Exception):
    """Nobody answered, or the answer stopped halfway; the message says why and changes only when the cause does."""


class UnusableError(Exception):
    """Somebody answered with something else than metrics; the message says with what."""


def seconds_left(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class ReceivedAnswer:
    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._pending = b""
        self.address: str = connection.getpeername()[0]

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, their names in lower case; raises UnusableError where this is no HTTP."""
        version, _, rest = self._line().partition(" ")
        status = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (status.isdigit() and len(status) == 3):
            raise UnusableError("it does not speak HTTP/1.1")
        headers: dict[str, str] = {}
        size = 0
        while line := self._line():
            size += len(line)
            if size > _LARGEST_HEAD_BYTES:
                raise UnusableError("its HTTP header does not end")
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(status), headers

    def body(self, headers: dict[str, str]) -> Iterator[bytes]:
        """The body in pieces; raises UnusableError where it is too large and UnreachableError where it is cut off."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise UnusableError("it sends compressed answers unasked")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            pieces = self._chunks()
        elif "content-length" in headers:
            pieces = self._exactly(_length(headers["content-length"], 10))
        else:
            pieces = self._to_the_end()
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > LARGEST_BYTES:
                raise UnusableError(f"it sent more than {LARGEST_BYTES // 2**20} MiB")
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while length := _length(self._line().partition(";")[0], 16):
            yield from self._exactly(length)
            if self._line():
                raise UnusableError("its chunks are not as long as they say")

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            if not self._pending and not self._receive():
                raise UnreachableError("it hung up in the middle of its answer")
            piece, self._pending = self._pending[:length], self._pending[length:]
            length -= len(piece)
            yield piece

    def _to_the_end(self) -> Iterator[bytes]:
        while self._pending or self._receive():
            piece, self._pending = self._pending, b""
            yield piece

    def _line(self) -> str:
        while b"\n" not in self._pending:
            if len(self._pending) > _LARGEST_HEAD_BYTES:
                raise UnusableError("it does not speak HTTP/1.1")
            if not self._receive():
                raise UnreachableError("it hung up in the middle of its answer")
        line, _, self._pending = self._pending.partition(b"\n")
        return line.rstrip(b"\r").decode("latin-1")

    def _receive(self) -> bool:
        self._connection.settimeout(seconds_left(self._deadline_s))
        more = self._connection.recv(_PIECE_BYTES)
        self._pending += more
        return bool(more)


def _length(text: str, base: int) -> int:
    digits = text.strip().lower()
    allowed = "0123456789abcdef"[:base]
    if not digits or len(digits) > 16 or digits.strip(allowed):
        raise UnusableError("it does not say how long its answer is")
    return int(digits, base)
