"""An HTTP server with a thread for each connection, and not more of them than it has places."""

from __future__ import annotations

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class BoundedServer(ThreadingHTTPServer):
    daemon_threads = True  # a client that keeps its connection must not hold up the end
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], connections: int) -> None:
        """Raises OSError where the address is taken or is not this host's, UnicodeError where it is no name."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        self._open = threading.BoundedSemaphore(connections)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._open.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be had
            self._open.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no failure of this server."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
