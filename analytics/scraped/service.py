"""What services that follow something share: a bounded HTTP server, /metrics and /healthz, and their end at a signal."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any

from fallow import __version__
from fallow.clock import MINUTE_MS
from fallow.errors import FallowError
from fallow.exposition import ExposedSamples, negotiate

_FREED_WITHIN_S = 1.0
_LOOK_S = 0.05
"""Between two looks whether to end."""


class BoundedServer(ThreadingHTTPServer):
    """Where all places are taken, whoever has sent no request for the longest makes room: idle and slow clients keep nobody out."""

    daemon_threads = True  # a client that keeps its connection must not hold up the end
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BoundedHandler], connections: int, remedy: str) -> None:
        """Raises FallowError with the remedy where the address is taken or is not this host's."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, handler)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise FallowError(f"cannot listen on {address[0]}:{address[1]}: {why}", remedy) from error
        self._open = threading.BoundedSemaphore(connections)
        self._waiting: dict[Any, None] = {}
        """Connections of which no request is being answered, in the order of time."""
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        """Answers in threads of its own until `close`."""
        threading.Thread(target=self.serve_forever, args=(_LOOK_S,), daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        self.shutdown()
        self.server_close()

    def waits(self, request: Any) -> None:
        with self._lock:
            self._waiting.pop(request, None)
            self._waiting[request] = None

    def is_asked(self, request: Any) -> None:
        with self._lock:
            self._waiting.pop(request, None)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._open.acquire(blocking=False) and not self._has_made_room():
            self.shutdown_request(request)
            return
        self.waits(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be had
            self._end(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end(request)

    def _has_made_room(self) -> bool:
        with self._lock:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            del self._waiting[longest]
            with contextlib.suppress(OSError):  # it has gone by itself
                longest.shutdown(socket.SHUT_RDWR)
        return self._open.acquire(timeout=_FREED_WITHIN_S)

    def _end(self, request: Any) -> None:
        self.is_asked(request)
        self._open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no failure of this server."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class BoundedHandler(BaseHTTPRequestHandler):
    """Tells the server when a request is there with its headers, and when it is answered. Logs nothing: counts say what came."""

    server_version = f"fallow/{__version__}"
    server: BoundedServer

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        if is_whole:
            self.server.is_asked(self.connection)
        return is_whole

    def handle_one_request(self) -> None:
        super().handle_one_request()
        self.server.waits(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that http.server calls it by
        pass


_PATIENCE_S = 10.0
_CONNECTIONS = 16


def patience_ms(every_ms: int) -> int:
    """How long a service that works `every_ms` may have finished nothing, before a restart may help."""
    return max(15 * MINUTE_MS, 3 * every_ms)


class FollowerPage(BoundedServer):
    """`metrics` and `health` are asked by many threads. Health is a status and what is told."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], ExposedSamples],
        health: Callable[[], tuple[int, dict[str, object]]],
    ) -> None:
        """Raises FallowError where the address is taken or is not this host's."""
        remedy = "set follow.listen to an address of this host with a free port, or to nothing"
        super().__init__((host, port), _Handler, _CONNECTIONS, remedy)
        self.metrics, self.health = metrics, health


class _Handler(BoundedHandler):
    timeout = _PATIENCE_S
    server: FollowerPage

    def do_GET(self) -> None:  # the name that http.server looks for
        path = self.path.partition("?")[0]
        if path == "/metrics":
            kind = negotiate(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, kind, self.server.metrics().render(kind))
        elif path == "/healthz":
            status, told = self.server.health()
            self._answer(status, "application/json", json.dumps(told).encode() + b"\n")
        elif path == "/":
            self._answer(
                HTTPStatus.OK, "text/plain", b"fallow follow: /metrics for Prometheus, /healthz for health checks\n"
            )
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"Not Found\n")

    do_HEAD = do_GET  # noqa: N815  # the name that http.server looks for

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def stop_at_signals(stop: threading.Event) -> None:
    """The work ends where it next looks at the event; a second signal ends it at once."""

    def ask(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
