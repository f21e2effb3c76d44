"""A faulty gateway between fallow and a metrics server: wants a token, refuses, cuts answers off, stays silent."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(frozen=True)
class Asked:
    """A request: its number from 0 on, its path with the query, headers in lower case, and the body."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answered:
    """An answer; with `cut_at`, its connection ends after that many bytes; `stalls` sends the head and then nothing."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    stalls: bool = False


class Gateway:
    """Pass requests on to `upstream` (a loopback port) unless `fault` answers, which may use the server's answer."""

    def __init__(self, fault: Callable[[Asked, Callable[[], Answered]], Answered], upstream: int | None = None) -> None:
        self.asked: list[Asked] = []
        self.fault = fault
        self.now_s: Callable[[], float] = time.time
        """The clock that its answers are dated by."""
        self._upstream = upstream
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(len(self.asked), request.command, request.path, headers, body)
        self.asked.append(asked)
        answered = self.fault(asked, lambda: self._passed_on(asked))
        request.send_response(answered.status)
        for name, value in answered.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(answered.body)))
        request.end_headers()
        request.wfile.write(answered.body[: answered.cut_at])
        if answered.stalls:
            self._closing.wait(120)
        if answered.stalls or answered.cut_at is not None:
            request.close_connection = True

    def _passed_on(self, asked: Asked) -> Answered:
        assert self._upstream is not None
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=60)
        headers = {name: value for name, value in asked.headers.items() if name not in _HOP | {"host"}}
        with contextlib.closing(connection):
            connection.request(asked.method, asked.path, body=asked.body or None, headers=headers)
            response = connection.getresponse()
            kept = {
                name: value for name, value in response.getheaders() if name.lower() not in _HOP | {"date", "server"}
            }
            return Answered(response.status, response.read(), kept)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway, serve = self, self.serve

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string(gateway.now_s() if timestamp is None else timestamp)

            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                serve(self)

            def do_POST(self) -> None:
                serve(self)

            def log_message(self, *_: object) -> None:
                """Requests are kept, not told."""

        return Handler


_JSON = {"Content-Type": "application/json"}
_RANGE = re.compile(r"(?P<selector>.*)\[(?P<length>\d+)ms\]")


@dataclass
class Evaluator:
    """Series of one name by the value of their label `gpu`, as (time in ms, value as text); range vectors only."""

    series: dict[str, Sequence[tuple[int, str]]]
    left_open: bool = True
    """As from Prometheus 3 on."""

    most_samples: int = 10**9
    """Beyond it a query is refused, in Prometheus' words."""

    warnings: tuple[str, ...] = ()
    asked_ms: list[int] = field(default_factory=list)
    """The length of each range that was asked for, refused ones included."""

    def __call__(self, asked: Asked, _: Callable[[], Answered]) -> Answered:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        if asked.path == "/api/v1/series":
            return self._success([self._labels(gpu) for gpu in self.series])
        if asked.path != "/api/v1/query":
            return Answered(404, b"404 page not found\n")
        found = _RANGE.fullmatch(form["query"])
        if found is None:
            return self._success({"resultType": "scalar", "result": [0, "1"]})
        return self._range_vector(round(float(form["time"]) * 1000), int(found["length"]))

    def _range_vector(self, end_ms: int, length_ms: int) -> Answered:
        self.asked_ms.append(length_ms)
        since_ms = end_ms - length_ms + (1 if self.left_open else 0)
        matrix = [
            {
                "metric": self._labels(gpu),
                "values": [[at / 1000, value] for at, value in samples if since_ms <= at <= end_ms],
            }
            for gpu, samples in self.series.items()
        ]
        if sum(len(each["values"]) for each in matrix) > self.most_samples:
            error = "query processing would load too many samples into memory in query execution"
            return Answered(422, json.dumps({"status": "error", "error": error}).encode(), _JSON)
        return self._success({"resultType": "matrix", "result": [each for each in matrix if each["values"]]})

    def _labels(self, gpu: str) -> dict[str, str]:
        return {"__name__": "util", "gpu": gpu}

    def _success(self, data: object) -> Answered:
        content = {"status": "success", "data": data, "warnings": list(self.warnings)}
        return Answered(200, json.dumps(content).encode(), _JSON)
