"""Slow, idle and too many clients before the threads: one thread is enough to answer the others."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.front import Front, Limits
from dashboard.protection import MOST_SENT_BYTES, TOO_LONG
from dashboard.wsgi import Pulse, health_application
from tests.attacks.slow_clients import KINDS, slow_clients
from tests.dashboard.test_source import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Application = Callable[[dict[str, Any], Any], list[bytes]]

LONG = b"x" * 4_000_000
PATIENCE_S = 20


def pages(environ: dict[str, Any], start: Any) -> list[bytes]:
    content = LONG if environ["PATH_INFO"] == "/long" else environ["wsgi.input"].read() or b"a page"
    start("200 OK", [("Content-Length", str(len(content)))])
    return [content]


def turned(application: Application, now_s: Callable[[], float] = time.monotonic, **limits: Any) -> tuple[Front, str]:
    """A front with one thread, which turns when a test has it turn, and its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    return Front(application, listening, Limits(threads=1, **limits), now_s), address


@contextmanager
def front(application: Application = pages, **limits: Any) -> Iterator[str]:
    """The address of a front with one thread."""
    running, address = turned(application, **limits)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            running.turn()
        running.drain(0)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield address
    finally:
        ended.set()
        thread.join(PATIENCE_S)


def answer(address: str, path: str = "") -> bytes:
    with urllib.request.urlopen(address + path, timeout=PATIENCE_S) as found:  # noqa: S310  # loopback
        return bytes(found.read())


def connected(address: str, sent: bytes = b"") -> socket.socket:
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("kind", KINDS)
def test_slow_clients_take_no_thread(kind: str) -> None:
    with front() as address, slow_clients(address, kind, long_path="/long", clients=8):
        assert answer(address) == b"a page"
        assert answer(address, "healthz") == b"a page"  # by the application, on a thread of its own


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        ({"header_s": 0.1}, b"GET / HTTP/1.1\r\nHost: x\r\n"),
        ({"request_s": 0.1}, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"),
        ({"idle_s": 0.1}, b""),
    ],
)
def test_a_connection_that_stands_still_is_closed(limits: dict[str, float], sent: bytes) -> None:
    with front(**limits) as address, connected(address, sent) as connection:
        assert connection.recv(100) == b""


def test_an_unread_answer_is_dropped_and_its_thread_freed() -> None:
    """One of 64 MB is more than is kept for a reader: its thread waits for them."""

    def huge(environ: dict[str, Any], start: Any) -> list[bytes]:
        return pages(environ, start) if environ["PATH_INFO"] == "/" else (start("200 OK", []), [LONG] * 16)[1]

    with front(huge, unread_s=0.2) as address, connected(address, b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert answer(address) == b"a page"


def test_the_connection_that_has_waited_longest_makes_room() -> None:
    with front(connections=3) as address:
        held = [connected(address) for _ in range(3)]
        assert answer(address) == b"a page"
        assert held[0].recv(100) == b""
        held[2].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert held[2].recv(100).startswith(b"HTTP/1.1 200")
        for each in held:
            each.close()


def test_requests_that_are_not_whole_hold_so_much_and_no_more() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    short = head.replace(b"1000000", b"300000")
    with front(held_bytes=500_000) as address, connected(address, head) as large:
        large.sendall(bytes(400_000))
        with connected(address, short) as small:
            small.sendall(bytes(200_000))
            assert large.recv(100) == b""
            small.sendall(bytes(100_000))
            assert small.recv(100).startswith(b"HTTP/1.1 200")


def test_what_is_too_long_is_refused_in_words_before_it_is_read() -> None:
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {MOST_SENT_BYTES + 1}\r\n\r\n".encode()
    with front() as address, connected(address, head) as long, long.makefile("rb") as answered:
        said = answered.read()
    assert said.startswith(b"HTTP/1.1 413 ")
    assert said.endswith(TOO_LONG.encode())


def test_whole_requests_that_wait_count_as_well(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.front._TURN_S", 0.01)
    running, address = turned(held.application, held_bytes=500_000, linger_s=0.1)
    sent = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + bytes(299_999)
    with connected(address, held.asked), connected(address, sent) as whole:
        while not held.is_held.is_set():
            running.turn()
        for _ in range(20):  # reads what there is
            running.turn()
        whole.sendall(b"x")
        with connected(address, sent) as other:
            for _ in range(20):
                running.turn()
            with contextlib.suppress(ConnectionResetError):
                assert other.recv(100) == b""
        held.let_go.set()
        running.turn()
        running.drain(PATIENCE_S)
        assert whole.recv(100).startswith(b"HTTP/1.1 200")


def test_unread_answers_hold_limited_memory() -> None:
    made = threading.Event()

    def long(_: dict[str, Any], start: Any) -> Iterator[bytes]:
        start("200 OK", [])
        try:
            yield from [LONG] * 4
        finally:  # also where the front closes the connection before all of it is made
            made.set()

    running, address = turned(long, held_bytes=500_000)
    with connected(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as slow:
        while not made.is_set():
            running.turn()
        for _ in range(4):  # a turn waits where nothing comes and nothing goes
            running.turn()
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while content := slow.recv(1_000_000):
                taken += len(content)
        assert 0 < taken < 4 * len(LONG)
    running.drain(0)


class Unread:
    """A client that reads nothing: its system's buffers are full; the next answer's first bytes stay in the front."""

    def __init__(self, **limits: Any) -> None:
        self.now_s, self.let_go = 0.0, threading.Event()
        self.front, address = turned(self._pages, lambda: self.now_s, **limits)
        self.client = connected(address, b"GET /answer/token?code=secret HTTP/1.1\r\nHost: x\r\n\r\n")
        while not (
            channels := [
                each
                for each in self.front._server.active_channels.values()  # noqa: SLF001
                if each.requests
            ]
        ):
            self.front.turn()
        [self.channel] = channels
        self.stuffed = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self.stuffed += self.channel.socket.send(bytes(65_536))

    def _pages(self, _: dict[str, Any], start: Any) -> list[bytes]:
        self.let_go.wait(PATIENCE_S)
        start("200 OK", [("Content-Length", "6")])
        return [b"a page"]

    def answer_after(self, seconds: float) -> None:
        """Has the application answer, and the front look after its connections so long after it was asked."""
        self.now_s += seconds
        self.let_go.set()
        wait_for(lambda: self.channel.total_outbufs_len and not self.channel.requests)
        self.front.turn()

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.front.turn()

    def taken(self) -> bytes:
        """All that comes until the answer is whole or the connection is closed."""
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while not found.endswith(b"a page") and (content := self.client.recv(1_000_000)):
                found += content
                self.front.turn()
        return found[self.stuffed :]


@pytest.fixture
def unread() -> Iterator[Callable[..., Unread]]:
    made: list[Unread] = []

    def make(**limits: Any) -> Unread:
        made.append(Unread(**limits))
        return made[-1]

    yield make
    for each in made:
        each.let_go.set()
        each.client.close()
        each.front.drain(0)


def test_the_time_to_take_an_answer_begins_with_the_answer(
    unread: Callable[..., Unread], caplog: pytest.LogCaptureFixture
) -> None:
    """An application that takes longer than a reader may leave an answer unread."""
    slow = unread(unread_s=30)
    slow.answer_after(31)
    slow.later(29)
    assert slow.taken().endswith(b"a page")
    assert not caplog.messages


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"unread_s": 30}, "the client read nothing for 30 s"),
        ({"unread_s": 3600, "answer_s": 30}, "the client took longer than 30 s"),
    ],
)
def test_an_answer_that_is_dropped_is_in_the_log_without_what_entitles(
    unread: Callable[..., Unread], caplog: pytest.LogCaptureFixture, limits: dict[str, float], why: str
) -> None:
    slow = unread(**limits)
    slow.answer_after(1)
    left = slow.channel.total_outbufs_len
    slow.later(31)
    assert caplog.messages == [f"dropped the answer to 127.0.0.1 for /answer/..., {left} B unread: {why}"]
    assert not slow.taken().endswith(b"a page")


def test_answers_that_end_with_the_process_or_for_others_are_in_the_log(
    unread: Callable[..., Unread], caplog: pytest.LogCaptureFixture
) -> None:
    ended = unread(linger_s=1)
    ended.answer_after(1)
    ended.front.drain(0)
    [line] = caplog.messages
    assert line.endswith("the process ends")
    caplog.clear()
    shed = unread(held_bytes=10)
    shed.answer_after(1)
    assert [each.partition(": ")[2] for each in caplog.messages] == ["requests and answers exceed the memory limit"]
    caplog.clear()
    crowd = unread(connections=4)
    crowd.answer_after(1)
    crowd.now_s += 1
    address = crowd.client.getpeername()
    with contextlib.ExitStack() as others:
        for _ in range(4):
            others.enter_context(socket.create_connection(address))
            crowd.front.turn()
    assert [each.partition(": ")[2] for each in caplog.messages] == ["too many connections are open"]


def test_connections_without_an_answer_go_without_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with (
        front(idle_s=0.1, header_s=0.1) as address,
        connected(address) as idle,
        connected(address, b"GET / HTTP/1.1\r\n") as half,
    ):
        assert idle.recv(100) == half.recv(100) == b""
    assert not caplog.messages


class Held:
    """An application in which a request for `/held` blocks its thread until `let_go` is set."""

    asked = b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"

    def __init__(self) -> None:
        self.is_held, self.let_go = threading.Event(), threading.Event()

    def application(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/held":
            self.is_held.set()
            self.let_go.wait(PATIENCE_S)
        return pages(environ, start)


@pytest.fixture
def held() -> Iterator[Held]:
    found = Held()
    yield found
    found.let_go.set()


def test_health_is_answered_and_others_asked_to_wait_while_the_thread_is_held(held: Held) -> None:
    with front(held.application, waiting=1) as address, connected(address, held.asked):
        try:
            assert held.is_held.wait(PATIENCE_S)
            with connected(address, held.asked + held.asked), connected(address, held.asked) as third:
                refused = third.recv(4096)
                assert answer(address, "healthz") == b"a page"
        finally:
            held.let_go.set()
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 5\r\n" in refused


def test_health_on_its_own_port_follows_the_pulse_of_the_pages() -> None:
    pulse = Pulse()
    with front(health_application(pulse)) as address:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            answer(address, "healthz")
        pulse.beat()
        assert answer(address, "healthz") == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            answer(address)


def test_a_client_that_hangs_up_is_noticed_while_it_is_answered() -> None:
    noticed, asked = threading.Event(), threading.Event()

    def watching(environ: dict[str, Any], start: Any) -> list[bytes]:
        asked.set()
        for _ in range(PATIENCE_S * 100):
            if environ["waitress.client_disconnected"]():
                noticed.set()
                break
            threading.Event().wait(0.01)
        return pages(environ, start)

    with front(watching) as address:
        with connected(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
            assert asked.wait(PATIENCE_S)
        assert noticed.wait(PATIENCE_S)


def test_an_end_answers_those_who_are_waiting() -> None:
    asked, let_go = threading.Event(), threading.Event()

    def slow(environ: dict[str, Any], start: Any) -> list[bytes]:
        asked.set()
        let_go.wait(PATIENCE_S)
        return pages(environ, start)

    running, address = turned(slow, linger_s=0.1)
    with connected(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as waiting, connected(address) as idle:
        while not asked.is_set():
            running.turn()
        running.drain(PATIENCE_S, let_go.set)
        assert waiting.recv(4096).endswith(b"a page")
        assert idle.recv(100) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_request_of_two_lengths_is_refused_and_its_connection_closed(sent: bytes) -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    with front() as address, connected(address, sent + hidden) as connection, connection.makefile("rb") as found:
        got = found.read()  # to the end: the connection is closed
    assert got.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert b" 200 OK" not in got
