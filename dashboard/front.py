"""HTTP server in front of the threads (waitress): only a whole request takes a thread, a slow connection takes none.

One loop reads all connections and sends all answers. It closes stalled connections, and if there are too many, the one
that has waited longest. A thread of its own answers `/healthz` and the requests that are refused here.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher
from waitress.utilities import Error, RequestEntityTooLarge

from analytics.delivery.links import PATH
from dashboard.access.hosts import Proxies, address_of
from dashboard.protection import HEALTH, MOST_SENT_BYTES, TOO_LONG
from fallow.config import Config
from fallow.outside_text import plain
from fallow.units import format_bytes

_LOG = logging.getLogger(__name__)

_MOST_HEADER_BYTES = 65_536
_READ_BYTES = 65_536
_TURN_S = 0.25
_MAINTENANCE_EVERY_S = 0.25
_RETRY_S = 5
_MOST_SHOWN = 200
"""The most characters of a path in the log."""


@dataclass(frozen=True)
class Limits:
    """The limits of one process's connections. Times are in seconds."""

    threads: int = 8
    connections: int = 400
    per_address: int = 100
    """Connections of one address that is neither a proxy nor this machine."""
    waiting: int = 200
    """Requests that wait for a thread."""
    held_bytes: int = 256 * 1024 * 1024
    """Bytes of all unanswered requests and of all answers that clients have not yet read."""
    header_s: float = 10.0
    """The longest time until a request's headers are complete."""
    request_s: float = 60.0
    """The longest time until a request's body is complete."""
    idle_s: float = 30.0
    """How long a connection without a request is kept."""
    unread_s: float = 30.0
    """How long a client may read nothing of an answer."""
    answer_s: float = 600.0
    """The longest time in which a client may read an answer."""
    linger_s: float = 2.0
    """How long a connection without a request is kept while the process ends."""
    proxies: Proxies = field(default_factory=lambda: Proxies(()))
    """Addresses that speak for many readers."""


def limits_of(settings: Config) -> Limits:
    """Return the limits of the settings; raises ConfigError for an invalid proxy."""
    return Limits(
        connections=settings.integer("dashboard.connections"),
        per_address=settings.integer("dashboard.connections_per_address"),
        proxies=Proxies(settings.texts("dashboard.proxies")),
    )


class Front:
    """Serves a WSGI application on a listening socket, which it takes over."""

    def __init__(
        self, application: Any, listening: socket.socket, limits: Limits, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # waitress logs every request that waits
        self._server = _Server(application, listening, limits, now_s)

    def turn(self) -> None:
        """Read and send what is ready; wait for at most a quarter of a second."""
        # as waitress's own `run` does
        wasyncore.loop(timeout=_TURN_S, use_poll=True, map=self._server._map, count=1)  # noqa: SLF001
        self._server.close_overdue()

    def drain(self, patience_s: float, alive: Callable[[], None] = lambda: None) -> None:
        """Accept no more connections; return once all requests are answered or time is up. Calls `alive` meanwhile."""
        self._server.end_listening()
        end = time.monotonic() + patience_s
        while self._server.active_channels and time.monotonic() < end:
            alive()
            self.turn()
        for each in self._server.dispatchers:
            each.set_thread_count(0)
        for channel in list(self._server.active_channels.values()):
            channel.note_drop("the process ends")
            channel.handle_close()
        wasyncore.close_all(self._server._map, ignore_all=True)  # noqa: SLF001


class _Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress is untyped
    """Refuses a request with two lengths (400); waitress then closes the connection."""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        names = {line.partition(b":")[0].lower() for line in header_plus.split(b"\r\n")[1:]}
        # RFC 9112, section 6.1: a proxy may take the end of such a body for the next reader's request
        if b"transfer-encoding" in names and (b"content-length" in names or self.version != "1.1"):
            raise ParsingError("Transfer-Encoding beside Content-Length, or not in HTTP/1.1")


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that knows how long it has waited for its client.

    Attributes:
        since: when the client's turn began.
        moved: when the client last read bytes of the answer, or the answer began.
        is_deferred: true while the next request waits until the client has read the previous answer.
    """

    parser_class = _Parser

    def __init__(self, server: _Server, *args: Any, **kwargs: Any) -> None:
        self._untaken = 0
        self.now_s = server.now_s
        self.since = self.moved = self.now_s()
        self.is_deferred = False
        self.path = ""
        super().__init__(server, *args, **kwargs)

    @property
    def total_outbufs_len(self) -> int:
        """Bytes of answers that the client has not read. waitress changes it in threads, under `outbuf_lock`."""
        return self._untaken

    @total_outbufs_len.setter
    def total_outbufs_len(self, bytes_: int) -> None:
        now = self.now_s()
        if not self._untaken or bytes_ < self._untaken:
            self.moved = now
        if bytes_ > self._untaken:
            self.since = now
        self._untaken = bytes_

    @property
    def is_waiting(self) -> bool:
        """True where it is the client's turn: no request of the client is being answered."""
        return (not self.requests or self.is_deferred) and not self.will_close

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete request and of unread answers: a close frees them."""
        begun = self.request.body_bytes_received if self.request is not None and not self.request.completed else 0
        return int(begun + self.total_outbufs_len)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of complete requests that wait for a thread or are being answered."""
        return sum(each.body_bytes_received for each in list(self.requests))

    def received(self, data: bytes) -> bool:
        if self.request is None:
            self.since = self.now_s()
        taken: bool = super().received(data)
        if self.held_bytes > _READ_BYTES:
            self.server.shed_bytes()
        return taken

    def handle_write(self) -> None:
        super().handle_write()
        self.take_up()

    def handle_close(self) -> None:
        if self.request is not None:
            self.request.close()
        super().handle_close()

    def take_up(self) -> None:
        """Queue the next request where it waited until the client had read the previous answer."""
        if self.is_deferred and not self.total_outbufs_len:
            self.is_deferred = False
            self.server.add_task(self)

    def overdue_reason(self, now: float, limits: Limits) -> str | None:
        """Return why the connection must be closed; None where it may stay."""
        if not self.outbuf_lock.acquire(blocking=False):
            return None  # a thread is adding to the answer or sending it
        try:
            waited_s = now - self.since if self.is_waiting else 0.0
            unmoved_s = now - self.moved if self.total_outbufs_len else None
        finally:
            self.outbuf_lock.release()
        if unmoved_s is not None:
            if unmoved_s > limits.unread_s:
                return f"the client read nothing for {limits.unread_s:g} s"
            most_s, why = limits.answer_s, f"the client took longer than {limits.answer_s:g} s"
        elif self.request is None:
            most_s, why = limits.idle_s, "the connection is idle"
        else:
            most_s = limits.request_s if self.request.headers_finished else limits.header_s
            why = "the request is incomplete"
        return why if waited_s > most_s else None

    def drop(self, why: str) -> None:
        """Close the connection at the next turn. The loop alone would never close it while its client reads nothing."""
        self.note_drop(why)
        self.will_close = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def note_drop(self, why: str) -> None:
        """Log a dropped answer, begun or still to come; a connection without an answer is not logged."""
        if (self.total_outbufs_len or self.requests) and not self.will_close:
            # a link's token is a secret in the path; all other secrets are in the query, which is not part of the path
            path = f"{PATH}..." if self.path.startswith(PATH) else plain(self.path, _MOST_SHOWN)
            unread = format_bytes(self.total_outbufs_len)
            _LOG.warning("dropped the answer to %s for %s, %s unread: %s", self.addr[0], path, unread, why)


class _Server(TcpWSGIServer):  # type: ignore[misc]
    channel_class = _Channel

    def __init__(self, application: Any, listening: socket.socket, limits: Limits, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._limits = limits
        self._maintained_s = now_s()
        self._light = ThreadedTaskDispatcher()
        self._light.set_thread_count(1)
        super().__init__(
            application,
            _sock=listening,
            bind_socket=False,
            sockinfo=(listening.family, listening.type, listening.proto, listening.getsockname()),
            adj=Adjustments(
                threads=limits.threads,
                connection_limit=2 * limits.connections,  # never reached: the oldest connection is closed before
                max_request_header_size=_MOST_HEADER_BYTES,
                max_request_body_size=MOST_SENT_BYTES + 1,
                recv_bytes=_READ_BYTES,
                inbuf_overflow=_READ_BYTES,  # longer requests wait in a file
                outbuf_overflow=4 * _READ_BYTES,
                channel_request_lookahead=1,  # sees a client that hangs up while it is being answered
                clear_untrusted_proxy_headers=False,  # nothing reads them
                log_socket_errors=False,
                ident="fallow",
            ),
        )

    @property
    def dispatchers(self) -> tuple[Any, ...]:
        return self.task_dispatcher, self._light

    def maintenance(self, now: float) -> None:
        """Do nothing: waitress's own maintenance uses the wall clock, and `close_overdue` replaces it."""

    def add_task(self, channel: _Channel) -> None:
        """Queue a connection with a complete request, but not before its client has read the previous answer.

        Otherwise a thread that answers the next request would wait for the client.
        """
        if channel.total_outbufs_len:
            channel.is_deferred = True
            return
        [request, *_] = channel.requests
        channel.path = "a request that is refused" if request.error else request.path
        if request.error is None and request.path != HEALTH:
            if len(self.task_dispatcher.queue) < self._limits.waiting:
                super().add_task(channel)
                return
            sentence = f"fallow: too many requests are waiting; try again in {_RETRY_S} s\n"
            request.error = _RefusedError(503, "Service Unavailable", sentence, ("Retry-After", str(_RETRY_S)))
        elif isinstance(request.error, RequestEntityTooLarge):
            request.error = _RefusedError(413, request.error.reason, TOO_LONG)
        self._light.add_task(channel)

    def handle_accept(self) -> None:
        super().handle_accept()
        while (oldest := self._excess_connection()) is not None:
            oldest.drop("too many connections are open")

    def close_overdue(self) -> None:
        """Close the connections that have been stalled for too long."""
        now = self.now_s()
        if now - self._maintained_s < _MAINTENANCE_EVERY_S:
            return
        self._maintained_s = now
        self.shed_bytes()
        for each in list(self.active_channels.values()):
            why = None if each.will_close else each.overdue_reason(now, self._limits)
            if why is not None:
                each.drop(why)
            each.take_up()

    def end_listening(self) -> None:
        wasyncore.dispatcher.close(self)
        self._limits = replace(self._limits, idle_s=self._limits.linger_s)

    def shed_bytes(self) -> None:
        """Close the connection with the most held bytes where all connections together hold more than `held_bytes`."""
        channels = self._open_channels()
        if sum(each.held_bytes + each.waiting_bytes for each in channels) > self._limits.held_bytes:
            largest = max(channels, key=lambda each: each.held_bytes)
            if largest.held_bytes:  # a complete request gets its answer
                largest.drop("requests and answers exceed the memory limit")

    def _open_channels(self) -> list[_Channel]:
        return [each for each in list(self.active_channels.values()) if not each.will_close]

    def _excess_connection(self) -> _Channel | None:
        """Return the connection to close where there are too many, in all or from one address; else None.

        It is the longest waiting connection of the address with the most waiting connections.
        """
        channels = self._open_channels()
        if len(channels) <= min(self._limits.per_address, self._limits.connections):
            return None
        waiting = [each for each in channels if each.is_waiting]
        crowds = Counter(each.addr[0] for each in waiting)
        if len(channels) <= self._limits.connections:
            crowds = Counter({address: count for address, count in crowds.items() if self._is_crowd(address, count)})
        if not crowds:
            return None
        [(address, _)] = crowds.most_common(1)
        return min((each for each in waiting if each.addr[0] == address), key=lambda each: each.since)

    def _is_crowd(self, address: str, count: int) -> bool:
        if count <= self._limits.per_address or address in self._limits.proxies:
            return False
        found = address_of(address)
        return found is None or not found.is_loopback


class _RefusedError(Error):  # type: ignore[misc]
    """A refusal with our own text in place of waitress's."""

    def __init__(self, code: int, reason: str, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.code, self.reason, self._headers = code, reason, headers

    def to_response(self, _: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        plain = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        return f"{self.code} {self.reason}", [*plain, *self._headers], self.body.encode()
