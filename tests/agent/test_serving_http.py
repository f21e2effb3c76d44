"""Asking an address: what may be asked, and real answers of every kind, whole, slow, broken and odd."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import prometheus_client
import pytest
import trustme

from agent.http_client import LARGEST_BYTES, UnreachableError, UnusableError, get, parse_endpoints
from fallow.errors import UsageError
from tests.agent.loopback import HOLD, Loopback, chunked, ok, status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

TEXT = 'vllm:num_requests_running{model_name="m"} 3.0\n'


def fetch(url: str, timeout_s: float = 5.0) -> str:
    (endpoint,) = parse_endpoints([url])
    pieces: list[bytes] = []
    get(endpoint, timeout_s, pieces.append)
    return b"".join(pieces).decode()


def answer_with(pieces: Sequence[bytes]) -> Callable[[str], Iterable[bytes]]:
    return lambda _path: pieces


@pytest.mark.parametrize(
    ("url", "asked", "addresses", "port", "target"),
    [
        ("http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/metrics", ("127.0.0.1",), 8000, "/metrics"),
        ("http://localhost:30000", "http://localhost:30000/metrics", ("127.0.0.1", "::1"), 30000, "/metrics"),
        ("http://[::1]:8002/metrics", "http://[::1]:8002/metrics", ("::1",), 8002, "/metrics"),
        ("https://127.9.8.7/v1/metrics", "https://127.9.8.7:443/v1/metrics", ("127.9.8.7",), 443, "/v1/metrics"),
        ("http://127.0.0.1/", "http://127.0.0.1:80/", ("127.0.0.1",), 80, "/"),
    ],
)
def test_loopback_addresses_may_be_asked(
    url: str, asked: str, addresses: tuple[str, ...], port: int, target: str
) -> None:
    (endpoint,) = parse_endpoints([url, url])
    assert (endpoint.url, endpoint.addresses, endpoint.port, endpoint.target) == (asked, addresses, port, target)


@pytest.mark.parametrize("url", [
    "http://10.0.0.5:8000/metrics", "http://example.com/metrics", "http://0.0.0.0:8000/metrics",
    "http://[::]:8000/metrics", "http://169.254.169.254/latest", "http://127.1:8000/", "http://0x7f000001/",
    "http://localhost.example.com/", "http://[::ffff:10.0.0.5]/", "ftp://127.0.0.1/", "file:///etc/passwd",
    "127.0.0.1:8000", "http://", "http://127.0.0.1:0/", "http://127.0.0.1:99999/", "http://127.0.0.1:80/a b",
    "http://127.0.0.1:80/\r\nX: y", "http://127.0.0.1#@example.com/", "",
])  # fmt: skip
def test_all_others_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"serving\.endpoints") as refused:
        parse_endpoints([url])
    assert refused.value.hint


@pytest.mark.parametrize(
    "url", ["http://user:hunter2@127.0.0.1:8000/metrics", "http://127.0.0.1:8000/metrics?token=hunter2"]
)
def test_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_endpoints([url])
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("pieces", [
    ok(TEXT),
    [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(TEXT),
     *(TEXT[at : at + 1].encode() for at in range(len(TEXT)))],
    chunked([TEXT.encode()]),
    chunked([TEXT[:7].encode(), TEXT[7:].encode()], extension=b";a=b"),
    chunked([TEXT[at : at + 1].encode() for at in range(len(TEXT))]),
    [b"HTTP/1.0 200 OK\r\n\r\n", TEXT.encode()],
    [b"HTTP/1.1 200\nContent-Length: %d\n\n" % len(TEXT), TEXT.encode(), b"more than it said"],
], ids=["length", "byte by byte", "chunk", "chunks", "many chunks", "to the end", "bare line feeds"])  # fmt: skip
def test_whole_answers_come_back_whole(pieces: list[bytes]) -> None:
    with Loopback(answer_with(pieces)) as server:
        assert fetch(server.url()) == TEXT
        (request,) = server.requests
    assert request.startswith(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n")


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        (status(404), "HTTP status 404"),
        (status(401), "HTTP status 401"),
        (status(500), "HTTP status 500"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "does not speak HTTP"),
        ([b"\x00\xff" * 40_000], "does not speak HTTP"),
        ([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000 + b"\r\n"], "header does not end"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: much\r\n\r\n"], "the length of its answer"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"], "the length of its answer"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "the length of its answer"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n"], "chunks"),
        ([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b"], "compressed"),
        ([b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 2**20] * (LARGEST_BYTES // 2**20 + 1)], "4 MiB"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", *[b"x" * 2**20] * 6], "4 MiB"),
        (status(302, "Location: http://10.0.0.5/metrics"), "another server"),
        (status(302, "Location: //10.0.0.5/metrics"), "another server"),
        (status(302, "Location: http://127.0.0.1:1/metrics"), "another server"),
        (status(302), "another server"),
        (status(307, "Location: /metrics"), "too often"),
    ],
)
def test_answers_without_metrics_are_named(pieces: list[bytes], reason: str) -> None:
    with Loopback(answer_with(pieces)) as server, pytest.raises(UnusableError, match=reason):
        fetch(server.url())


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([HOLD], "within 0.3 s"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", HOLD], "within 0.3 s"),
        ([], "closed the connection"),
        ([b"HTTP/1.1 200 OK\r\n"], "closed the connection"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"], "closed the connection"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"], "closed the connection"),
    ],
)
def test_answers_that_stop_halfway_are_no_answers(pieces: list[bytes], reason: str) -> None:
    with Loopback(answer_with(pieces)) as server, pytest.raises(UnreachableError, match=reason):
        fetch(server.url(), timeout_s=0.3 if HOLD in pieces else 20)


def test_a_server_that_drips_does_not_hold_the_agent_up() -> None:
    over = threading.Event()

    def drip(_path: str) -> Iterable[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        while not over.wait(0.02):
            yield b"x"

    with Loopback(drip) as server:
        with pytest.raises(UnreachableError, match=r"within 0\.3 s"):
            fetch(server.url(), timeout_s=0.3)
        over.set()


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError, match="refused"):
            fetch(f"http://127.0.0.1:{taken.getsockname()[1]}/metrics")


def test_a_redirect_to_another_path_is_followed() -> None:
    def answer(path: str) -> list[bytes]:
        if path == "/metrics/":
            return ok(TEXT)
        return status(
            307, f"Location: http://127.0.0.1:{server.port}/metrics/" if path == "/metrics" else "Location: /metrics"
        )

    with Loopback(answer) as server:
        assert fetch(server.url("/start")) == TEXT
        assert [request.split(" ")[1] for request in server.requests] == ["/start", "/metrics", "/metrics/"]


def test_localhost_is_asked_over_both_protocols() -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    with Loopback(answer_with(ok(TEXT)), address="::1") as server:
        assert fetch(server.url(host="localhost")) == TEXT


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_the_official_python_client_is_understood() -> None:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Gauge("up", "", registry=registry).set(1)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    try:
        assert "\nup 1.0\n" in fetch(f"http://127.0.0.1:{server.server_port}/metrics")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_tls_is_spoken_whoever_signed(tmp_path: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(TEXT.encode())

        def log_message(self, *_: object) -> None: ...

    import ssl  # as the agent does

    certificate = trustme.CA().issue_cert("inference.example.com")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        assert fetch(f"https://127.0.0.1:{server.server_port}/metrics") == TEXT
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
