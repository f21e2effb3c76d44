"""`/metrics` and `/healthz` of a service that follows something: in threads of its own, few at a time, none for long."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus

from analytics.scraped.bounded_server import BoundedHandler, BoundedServer
from fallow.exposition import ExposedSamples, negotiate

_PATIENCE_S = 10.0
_CONNECTIONS = 16


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

    def do_GET(self) -> None:  # noqa: N802  # the name that http.server looks for
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
