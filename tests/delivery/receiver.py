"""A real HTTP receiver on loopback that answers what a test asks of it."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import ssl

DROP, HANG, DRIP = -1, -2, -3
"""In place of a status: end the connection, say nothing more, or a byte now and then."""

Answer = int | tuple[int, dict[str, str]]


class Receiver:
    """Gives the answers in their order, and 200 after the last; remembers paths, headers and bodies."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: list[Answer] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.answer(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def url(self, path: str = "/hook/secret-token", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def posted(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.paths.append(handler.path)
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        self.bodies.append(handler.rfile.read(int(handler.headers.get("Content-Length", "0"))))
        answer = self.answers.pop(0) if self.answers else 200
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        handler.close_connection = True
        if status == HANG:
            self.over.wait(30)
        elif status == DRIP:
            self._drip(handler)
        elif status == DROP:
            handler.connection.shutdown(socket.SHUT_RDWR)
        else:
            handler.send_response(status)
            for name, value in {"Content-Length": "2", **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(b"ok")

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        """Never silent for long, and never done."""
        try:
            handler.connection.sendall(b"HTTP/1.1 ")
            while not self.over.wait(0.05):
                handler.connection.sendall(b"a")
        except OSError:
            return
