"""The server of /metrics and /healthz over real sockets: who gets in, what it answers, and what cannot harm it."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import ssl
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from agent.metrics import MetricsSettings, metrics_server
from agent.snapshot import SnapshotBoard
from fallow import config
from fallow.errors import ConfigError
from fallow.exposition import OPEN_METRICS, TEXT
from fallow.http_server import ConnectionBounds, Connections, HttpServer, Request, Response, parse_listen, text_response
from tests.agent.conftest import wait_until
from tests.agent.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Serve = Callable[..., HttpServer]

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def board() -> SnapshotBoard:
    board = SnapshotBoard()
    board.publish(snapshot())
    return board


@pytest.fixture
def serve(board: SnapshotBoard) -> Iterator[Serve]:
    with contextlib.ExitStack() as running:

        def start(**settings: str) -> HttpServer:
            server = metrics_server(MetricsSettings("127.0.0.1", 0, **settings), board)
            server.start()
            running.callback(server.close)
            return server

        yield start


def bound(monkeypatch: pytest.MonkeyPatch, **bounds: float) -> None:
    """Gives the servers that are made from now on other bounds."""
    monkeypatch.setattr("fallow.http_server.ConnectionBounds", partial(ConnectionBounds, **bounds))


def ask(server: HttpServer, path: str = "/metrics", method: str = "GET", **headers: str) -> Answer:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


def tr(server: HttpServer, sent: bytes) -> bytes:
    """Everything that the server answers to these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(4096):
            received += piece
        return received


def test_a_scrape(serve: Serve) -> None:
    status, headers, body = ask(serve())
    assert (status, headers["content-type"], headers["connection"]) == (200, TEXT, "close")
    assert int(headers["content-length"]) == len(body)
    assert b"\nfallow_up 1\n" in body
    status, headers, body = ask(serve(), Accept="application/openmetrics-text; version=1.0.0")
    assert (status, headers["content-type"]) == (200, OPEN_METRICS)
    assert body.endswith(b"\n# EOF\n")


def test_health_and_the_rest(serve: Serve, board: SnapshotBoard) -> None:
    server = serve()
    status, headers, body = ask(server, "/healthz?verbose")
    assert (status, headers["content-type"], json.loads(body)["status"]) == (200, "application/json", "ok")
    board.publish(snapshot(time.time_ns() // 1_000_000 - 600_000))
    assert ask(server, "/healthz")[0] == 503
    assert ask(server, "/")[0] == 200
    assert ask(server, "/etc/passwd")[0] == 404
    assert ask(server, "/metrics/")[0] == 404
    status, headers, body = ask(server, method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000
    status, headers, _ = ask(server, method="POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_a_handler_that_fails_is_answered_in_a_line_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def respond(request: Request) -> Response:
        if request.path == "/full":
            raise OSError(28, "No space left on device")
        return text_response(HTTPStatus.OK, str(1 // len(request.path[1:])))

    server = HttpServer(("127.0.0.1", 0), respond, "a test", "none")
    server.start()
    with contextlib.closing(server):
        for path in ("/", "/full"):
            caplog.clear()
            status, _, body = ask(server, path)
            assert (status, body) == (500, b"Internal Server Error\n")
            assert [each.getMessage() for each in caplog.records] == ["a test: a request failed"]
        assert ask(server, "/x")[::2] == (200, b"1\n"), "it goes on"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nName : value\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\xff\xfe\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET / HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_what_is_no_good_request_is_told_so(serve: Serve, sent: bytes, status: bytes) -> None:
    assert tr(serve(), sent).startswith(b"HTTP/1.1 " + status)


def test_a_large_body_is_not_waited_for(serve: Serve) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 30_000)
        assert connection.recv(4096).startswith(b"HTTP/1.1 405")


def idle(server: HttpServer, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    """A connection that says this much and no more."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30, source_address=(source, 0))
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "half a request"])
def test_idle_connections_keep_no_scrape_out(serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    bound(monkeypatch, head_s=120.0, answer_s=120.0)
    server = serve()
    with contextlib.ExitStack() as stack:
        # from the scrape's own address, and from so many others that all places are taken
        for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"):
            for _ in range(ConnectionBounds.connections):
                stack.enter_context(idle(server, sent, source))
        assert [ask(server)[0] for _ in range(19)] == [200] * 19
        assert ask(server, "/healthz")[0] == 200
        assert server.open_connections <= ConnectionBounds.connections


def test_whoever_reads_nothing_keeps_no_scrape_out(
    serve: Serve, board: SnapshotBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(monkeypatch, answer_s=120.0, slow_s=0.0)
    board.publish(snapshot(pool="p" * 20_000_000))  # more than any buffer on the way holds
    server = serve()
    with contextlib.ExitStack() as stack:
        deaf = [
            stack.enter_context(idle(server, b"GET /metrics HTTP/1.1\r\n\r\n", source))
            for source in ("127.0.0.2", "127.0.0.3")
            for _ in range(ConnectionBounds.per_address)
        ]
        for each in deaf:
            assert each.recv(8, socket.MSG_PEEK) == b"HTTP/1.1", "it is being served"
        board.publish(snapshot())
        assert ask(server)[0] == 200
        assert ask(server, "/healthz")[0] == 200


def test_an_address_closes_its_own_connections_and_not_those_of_others(serve: Serve) -> None:
    server = serve()
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(idle(server, b"GET /metrics HTTP/1.1\r\n", "127.0.0.2"))
        greedy = [stack.enter_context(idle(server)) for _ in range(3 * ConnectionBounds.connections)]
        assert greedy[0].recv(1) == b"", "its oldest"
        other.sendall(b"\r\n")
        assert other.recv(4096).startswith(b"HTTP/1.1 200")


def pair(stack: contextlib.ExitStack) -> socket.socket:
    one, other = socket.socketpair()
    stack.enter_context(other)
    return stack.enter_context(one)


def test_who_goes_for_anothers_sake() -> None:
    now_s = 0.0
    open_now = Connections(ConnectionBounds(connections=3, per_address=2), lambda: now_s)
    with contextlib.ExitStack() as stack:
        first, second = (open_now.admit(pair(stack), "a") for _ in range(2))
        third = open_now.admit(pair(stack), "b")
        assert first is not None
        assert second is not None
        assert third is not None
        first.is_served = second.is_served = third.is_served = True
        assert not open_now.has_room(), "all are being answered, and not slowly"
        second.is_served = False
        assert open_now.has_room()
        assert second.is_closed, "idle goes before slow, and before what is older"
        open_now.end(second)
        fourth = open_now.admit(pair(stack), "a")
        assert fourth is not None
        fourth.is_served = True
        assert open_now.admit(pair(stack), "a") is None, "its share is in use"
        now_s = ConnectionBounds.slow_s + 1
        assert open_now.has_room()
        assert first.is_closed, "the slowest reader"
        assert len(open_now) == 2


def drip(connection: socket.socket) -> bool:
    """Says one byte; whether the connection is still open."""
    try:
        connection.sendall(b"x")
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_a_client_that_dawdles_is_let_go(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then must not prolong the connection for ever."""
    bound(monkeypatch, head_s=0.2)
    server = serve()
    with idle(server) as silent, idle(server) as dripping:
        dripping.settimeout(0.02)
        wait_until(lambda: not drip(dripping))
        with contextlib.suppress(ConnectionError):
            assert silent.recv(1) == b""
    wait_until(lambda: server.open_connections == 0)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first-secret\n")
    file.chmod(0o600)
    return file


def test_the_token(serve: Serve, token: Path) -> None:
    server = serve(token_file=str(token))
    status, headers, body = ask(server)
    assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="fallow"')
    assert b"DCGM" not in body
    for wrong in (
        "Bearer first-secre",
        "Bearer first-secret2",
        "first-secret",
        "Basic first-secret",
        "Bearer",
        "Bearer \xfc",
    ):
        assert ask(server, Authorization=wrong)[0] == 401, wrong
    for right in ("Bearer first-secret", "bearer first-secret"):
        assert ask(server, Authorization=right)[0] == 200
    assert ask(server, "/healthz")[0] == 200  # a kubelet has no token


def test_the_token_is_rotated_and_a_broken_file_leaves_the_former(
    serve: Serve, token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(token_file=str(token))
    fresh = token.with_name("fresh")
    fresh.write_text("second")
    fresh.rename(token)
    assert ask(server, Authorization="Bearer first-secret")[0] == 401
    assert ask(server, Authorization="Bearer second")[0] == 200
    token.write_text("")
    with caplog.at_level(logging.WARNING, "fallow.agent"):
        assert [ask(server, Authorization="Bearer ")[0] for _ in range(3)] == [401] * 3
        assert ask(server, Authorization="Bearer second")[0] == 200
    assert len([each for each in caplog.records if "stays in force" in each.message]) == 1
    token.unlink()
    assert ask(server, Authorization="Bearer second")[0] == 200


@pytest.mark.parametrize("content", [None, "", " \n", "two words", "schlüssel"])
def test_a_file_without_a_token_is_refused_at_the_start(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError) as error:
        metrics_server(MetricsSettings("127.0.0.1", 0, token_file=str(file)), SnapshotBoard())
    assert str(file) in str(error.value)
    assert error.value.hint


def certificate(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    issued = authority.issue_cert("127.0.0.1")
    paths = folder / "cert.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(paths[0])
    issued.private_key_pem.write_to_path(paths[1])
    return paths


def fetch_serial(server: HttpServer, authority: trustme.CA, version: ssl.TLSVersion | None = None) -> str:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        serial = str((secure.getpeercert() or {})["serialNumber"])
        secure.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        received = b""
        while piece := secure.recv(65536):
            received += piece
        assert b"\nfallow_up 1\n" in received
        return serial


def test_tls_and_a_renewed_certificate(serve: Serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    cert, key = certificate(authority, tmp_path)
    server = serve(tls_certificate=str(cert), tls_key=str(key))
    first = fetch_serial(server, authority)
    assert fetch_serial(server, authority, ssl.TLSVersion.TLSv1_2) == first
    certificate(authority, tmp_path)
    assert fetch_serial(server, authority) != first
    cert.write_text("half of a certif")
    fetch_serial(server, authority)  # the former one stays
    with contextlib.suppress(OSError):  # it may hang up at once
        assert b"fallow_up" not in tr(server, b"GET /metrics HTTP/1.1\r\n\r\n")


def test_tls_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    cert, _ = certificate(trustme.CA(), tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, key = certificate(trustme.CA(), other)
    for pair in ((cert, key), (key, cert), (cert, tmp_path / "none")):
        with pytest.raises(ConfigError):
            metrics_server(
                MetricsSettings("127.0.0.1", 0, tls_certificate=str(pair[0]), tls_key=str(pair[1])), SnapshotBoard()
            )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("9477", ("127.0.0.1", 9477)),
        (":9477", ("127.0.0.1", 9477)),
        ("0.0.0.0:9477", ("0.0.0.0", 9477)),  # noqa: S104  # written out, it is meant
        ("[::1]:1", ("::1", 1)),
        ("[10.0.0.7]:9478", ("10.0.0.7", 9478)),  # a pod's address in brackets, whatever its family
        ("gn001.example:9477", ("gn001.example", 9477)),
        *((text, None) for text in ["here", "127.0.0.1", "::1:9477", "[::1]", "1.2.3.4:99999", "http://x:1", "1:2:3"]),
        ("a b:1", None),
    ],
)
def test_addresses(text: str, place: tuple[str, int] | None) -> None:
    if place is None:
        with pytest.raises(ConfigError, match=r"metrics\.listen"):
            parse_listen(text, "metrics.listen")
    else:
        assert parse_listen(text, "metrics.listen") == place


def settings(**values: str) -> config.Config:
    return config.load({f"metrics.{name}": text for name, text in values.items()}, environment={})


def test_settings_come_from_the_config() -> None:
    assert MetricsSettings.from_config(settings(listen=":9477")) == MetricsSettings("127.0.0.1", 9477)
    for half, missing in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        with pytest.raises(ConfigError, match=rf"metrics\.{missing} is not set"):
            MetricsSettings.from_config(settings(listen="0", **{half: "/some/where"}))


@pytest.mark.parametrize(
    ("host", "mode", "told"),
    [
        ("0.0.0.0", None, "every client that reaches"),  # noqa: S104  # the point of the test
        ("0.0.0.0", 0o600, "unencrypted"),  # noqa: S104  # as above
        ("127.0.0.1", 0o644, "can be read by every user"),
        ("127.0.0.1", None, ""),
    ],
)
def test_an_open_door_is_told_of(
    token: Path, caplog: pytest.LogCaptureFixture, host: str, mode: int | None, told: str
) -> None:
    token.chmod(mode or 0o600)
    server = metrics_server(MetricsSettings(host, 0, str(token) if mode else ""), SnapshotBoard())
    server.start()
    server.close()
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert [told in each for each in warnings] == ([True] if told else [])
    assert "first-secret" not in caplog.text


def test_closing_leaves_nothing_open(board: SnapshotBoard) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        server = metrics_server(MetricsSettings("127.0.0.1", 0), board)
        server.start()
        ask(server)
        server.close()
    wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)
