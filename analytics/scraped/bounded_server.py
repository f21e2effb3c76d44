"""An HTTP server with a thread for each connection, and not more of them than it has places."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fallow import __version__
from fallow.errors import FallowError

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
