"""A real server on a loopback port that answers exactly the bytes that a test gives it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HOLD = b"hold"
"""In place of a piece of an answer: keep the connection open and say nothing until the test is over."""


def ok(text: str, *headers: str) -> list[bytes]:
    """A whole answer whose length is given."""
    body = text.encode()
    return [_head(200, f"Content-Length: {len(body)}", *headers), body]


def chunked(pieces: Iterable[bytes], extension: bytes = b"") -> list[bytes]:
    """A whole answer in chunks, as uvicorn and hyper send it."""
    chunks = [b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces]
    return [_head(200, "Transfer-Encoding: chunked"), *chunks, b"0\r\n\r\n"]


def status(code: int, *headers: str) -> list[bytes]:
    """An answer without a body."""
    return [_head(code, "Content-Length: 0", *headers)]


def _head(code: int, *headers: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {code} Whatever", *headers, "")).encode()


class Loopback:
    """Serves one connection after the other in a thread, and remembers what it was asked."""

    def __init__(self, answer: Callable[[str], Iterable[bytes]], address: str = "127.0.0.1") -> None:
        """`answer` gets the path that was asked for and gives the pieces to send."""
        self._answer = answer
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listening = socket.socket(family, socket.SOCK_STREAM)
        self._listening.bind((address, 0))
        self._listening.listen()
        self.port: int = self._listening.getsockname()[1]
        self.requests: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def url(self, path: str = "/metrics", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self._speak(connection)

    def _speak(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request and (more := connection.recv(65536)):
            request += more
        if not request:
            return
        self.requests.append(request.decode())
        for piece in self._answer(request.split(b" ")[1].decode()):
            if piece == HOLD:
                self._over.wait(60)
            else:
                connection.sendall(piece)
