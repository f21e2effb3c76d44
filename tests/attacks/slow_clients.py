"""Slow clients of four kinds against a server on loopback, and how long an honest reader waits meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REOPENED_EVERY_S = 0.2
_WINDOW_BYTES = 4096
_ANSWERS = 50


@dataclass(frozen=True)
class Slowest:
    """The slowest answers that an honest reader had while `clients` slow ones of a kind were there; seconds."""

    kind: str
    clients: int
    asked: int
    health_s: float
    page_s: float


def half_sent_header(connection: socket.socket, host: str, _: str) -> None:
    connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nX-Slow: ".encode())


def half_sent_body(connection: socket.socket, host: str, _: str) -> None:
    connection.sendall(
        f"POST /_dash-update-component HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        'Content-Type: application/json\r\nContent-Length: 10000\r\n\r\n{"output":'.encode()
    )


def unread_answers(connection: socket.socket, host: str, long_path: str) -> None:
    """Asks for a long file again and again, and takes none of it."""
    for _ in range(_ANSWERS):
        connection.sendall(f"GET {long_path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def idle(connection: socket.socket, host: str, _: str) -> None:
    """One answered request, and nothing more."""
    connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


KINDS: dict[str, Callable[[socket.socket, str, str], None]] = {
    "half-sent header": half_sent_header,
    "half-sent body": half_sent_body,
    "unread answers": unread_answers,
    "idle connections": idle,
}


def slowest_answers(
    address: str,
    kind: str,
    page: urllib.request.Request,
    *,
    long_path: str = "/_dash-component-suites/plotly/package_data/plotly.min.js",
    clients: int = 64,
    lasts_s: float = 10.0,
    patience_s: float = 30.0,
) -> Slowest:
    """Ask in turn for `/healthz` and `page` during `lasts_s`, beside slow clients; no answer counts as `patience_s`."""
    health, pages = [], []
    with slow_clients(address, kind, long_path=long_path, clients=clients):
        end = time.monotonic() + lasts_s
        while time.monotonic() < end:
            health.append(seconds_to_answer(urllib.request.Request(f"{address}healthz"), patience_s))  # noqa: S310
            pages.append(seconds_to_answer(page, patience_s))
            time.sleep(0.05)
    return Slowest(kind, clients, len(pages), max(health), max(pages))


def seconds_to_answer(request: urllib.request.Request, patience_s: float) -> float:
    """How long a whole answer with status 200 took; `patience_s` where there was none."""
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=patience_s) as answer:  # noqa: S310  # loopback
            answer.read()
    except OSError:
        return patience_s
    return time.monotonic() - begun


@contextmanager
def slow_clients(address: str, kind: str, *, long_path: str, clients: int) -> Iterator[None]:
    """Keeps so many connections of a kind open, and opens again what the server closes."""
    host = urlsplit(address).netloc
    ended = threading.Event()
    begun = threading.Event()
    thread = threading.Thread(
        target=_attack,
        args=(host, kind, long_path),
        kwargs={"clients": clients, "begun": begun, "ended": ended},
        daemon=True,
    )
    thread.start()
    try:
        begun.wait(60)
        yield
    finally:
        ended.set()
        thread.join(30)


def _attack(
    host: str, kind: str, long_path: str, *, clients: int, begun: threading.Event, ended: threading.Event
) -> None:
    held: list[socket.socket] = []
    try:
        while not ended.is_set():
            held = [each for each in held if not _is_closed(each, reads=kind != "unread answers")]
            while len(held) < clients and not ended.is_set():
                if (opened := _opened(host, kind, long_path)) is None:
                    break
                held.append(opened)
            begun.set()
            ended.wait(_REOPENED_EVERY_S)
    finally:
        begun.set()
        for each in held:
            each.close()


def _opened(host: str, kind: str, long_path: str) -> socket.socket | None:
    name, _, port = host.rpartition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW_BYTES)
    connection.settimeout(5)
    try:
        connection.connect((name, int(port)))
        connection.settimeout(0)
        with contextlib.suppress(BlockingIOError):  # it is full on the way there
            KINDS[kind](connection, host, long_path)
    except OSError:
        connection.close()
        return None
    return connection


def _is_closed(connection: socket.socket, *, reads: bool) -> bool:
    """Whether the server has hung up. One that does not read looks only for a reset, which shows when it sends."""
    try:
        if reads:
            while content := connection.recv(65536):
                del content
            closed = True
        else:
            connection.send(b"")
            closed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
    except BlockingIOError:
        return False
    except OSError:
        closed = True
    if closed:
        connection.close()
    return closed
