"""Serves /metrics and /healthz in threads of its own; nothing that a client does reaches the sampling.

At most eight connections at a time, four of one address, none of them longer than ten seconds, each for one request that has to be
there within three. Where there are more, those that keep others out are let go (http_server.py).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import threading
import time
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from agent.collectors import UNKNOWN
from agent.metrics.http_server import BadRequestError, Connections, Request, Response, read_request, send_response
from agent.snapshot import WATCHED, is_silent
from fallow.clock import format_ms
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.metrics.access import Certificate, Token
    from agent.metrics.http_server import MetricsSettings, OpenConnection
    from agent.snapshot import PublishingStatus, SnapshotBoard


def judge(board: SnapshotBoard) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the answer: 503 exactly where `fallow agent status` ends with 1, else 200.

    A restart mends neither a driver that is down nor a GPU or a store that is away: these are told with 200.
    """
    newest = board.latest_with_age()
    if newest is None:
        age_s = board.age_s()
        answer: dict[str, Any] = {"status": "starting", "reason": "no interval has been closed yet"}
        return (503, _silent(answer, age_s)) if is_silent(age_s, board.interval_ms) else (200, answer)
    snapshot, age_s = newest
    health = Counter(row["health"] for row in snapshot.gpus)
    answer = {"status": "ok", "mode": snapshot.mode, "age_seconds": round(age_s, 1), "gpus": dict(health)}
    if (publishing := _publishing(snapshot.publishing)) is not None:
        answer["publishing"] = publishing
    if is_silent(age_s, snapshot.interval_ms):
        return 503, _silent(answer, age_s)
    if snapshot.mode == "released":
        return 200, answer | {"status": "released"}
    if health["driver_down"]:
        return 200, answer | {"status": "driver_down", "reason": "the NVIDIA driver cannot be used"}
    if not any(health[state] for state in (*WATCHED, "asleep", UNKNOWN)):
        return 200, answer | {"status": "gpus_gone", "reason": f"none of {len(snapshot.gpus)} GPUs can be watched"}
    return 200, answer


def _publishing(state: PublishingStatus) -> str | None:
    """What is wrong between the spool and the lake; without addresses and names, for everybody may ask."""
    if state.failing_since_ms is not None:
        return f"rows wait in the spool since {format_ms(state.failing_since_ms)}: `fallow agent status` says why"
    if state.name_conflict is not None:
        return "another agent has this host's name: `fallow agent status` says which"
    return None


def _silent(answer: dict[str, Any], age_s: float) -> dict[str, Any]:
    return answer | {"status": "stale", "reason": f"no interval was closed for {age_s:.0f} s"}


PATIENCE_S = 10.0
HEAD_PATIENCE_S = 3.0
"""For the handshake and the request: a scrape sends it at once."""
_BACKLOG = 128  # a burst of idle connections must not make a scrape's own wait for a second try of its kernel
_FULL_S = 0.1  # between two looks for room
_PAUSE_S = 1.0  # after an accept that failed, as when descriptors have run out

_PLAIN = "text/plain; charset=utf-8"
_JSON = "application/json"
_INDEX = b"fallow agent: /metrics for Prometheus, /healthz for health checks\n"
_HEALTH_INDEX = b"fallow agent: /healthz for health checks\n"

log = logging.getLogger("fallow.agent")


class MetricsEndpoint:
    """The listening socket and the thread that accepts on it."""

    def __init__(self, settings: MetricsSettings, board: SnapshotBoard) -> None:
        """Raises ConfigError where the token or the certificate cannot be used."""
        self._settings = settings
        self._board = board
        self._token, self._certificate = _guards(settings)
        self._connections = Connections()
        self._socket: socket.socket | None = None
        self._wake, self._waker = -1, -1
        self._thread = threading.Thread(target=self._accept_all, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def start(self) -> None:
        """Begins to listen; raises FallowError where the address is taken or is not this host's.

        After that nothing is open, and it may be called again.
        """
        settings = self._settings
        try:
            family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.create_server((str(address[0]), settings.port), family=family, backlog=_BACKLOG)
            self._wake, self._waker = os.pipe()
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no resolver can be asked for
            self.close()
            raise FallowError(
                f"cannot listen on {settings.host}:{settings.port} for {settings.what}: "
                f"{getattr(error, 'strerror', None) or error}",
                f"set {settings.setting} to an address of this host with a free port",
            ) from error
        self._socket.setblocking(False)  # noqa: FBT003  # a client that is gone before accept() must not block it
        self._warn()
        self._thread.start()
        log.info("%s on %s", settings.what, settings.url)

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        """Stops listening; connections that are open end by themselves within their ten seconds."""
        if self._thread.is_alive():
            os.write(self._waker, b"x")
            self._thread.join()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        # closes it once: the descriptor numbers may be reused by then
        descriptors, self._wake, self._waker = (self._wake, self._waker), -1, -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    @property
    def _listening(self) -> socket.socket:
        if self._socket is None:
            raise RuntimeError("start() comes first")
        return self._socket

    def _warn(self) -> None:
        settings = self._settings
        if settings.loopback or settings.health_only:
            return
        if self._token is None:
            log.warning("everybody who reaches %s can read /metrics; set metrics.token_file", settings.url)
        elif self._certificate is None:
            log.warning("the token for %s travels unencrypted; set metrics.tls_certificate", settings.url)

    def _accept_all(self) -> None:
        waiting = select.poll()
        waiting.register(self._listening, select.POLLIN)
        waiting.register(self._wake, select.POLLIN)
        while True:
            if any(descriptor == self._wake for descriptor, _ in waiting.poll()):
                return
            if not self._connections.has_room():  # all are being answered: whoever waits is next
                if select.select([self._wake], [], [], _FULL_S)[0]:
                    return
                continue
            try:
                connection, peer = self._listening.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                log.warning("/metrics cannot accept a connection: %s", error.strerror)
                if select.select([self._wake], [], [], _PAUSE_S)[0]:
                    return
                continue
            self._take(connection, str(peer[0]))

    def _take(self, connection: socket.socket, address: str) -> None:
        """Serves the connection in a thread of its own; above its address's share it is closed at once."""
        admitted = self._connections.admit(connection, address)
        if admitted is None:
            connection.close()
            return
        try:
            threading.Thread(target=self._serve, args=(admitted,), name="scrape", daemon=True).start()
        except RuntimeError:  # no thread can be had
            self._connections.end(admitted)
            connection.close()

    def _serve(self, connection: OpenConnection) -> None:
        try:
            with contextlib.suppress(OSError):  # a client that disconnects or is too slow is dropped
                self._converse(connection)
        except Exception:
            log.exception("a request to /metrics failed")
        finally:
            self._connections.end(connection)
            connection.socket.close()

    def _converse(self, admitted: OpenConnection) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        head_deadline_s = time.monotonic() + HEAD_PATIENCE_S
        admitted.socket.settimeout(HEAD_PATIENCE_S)
        if self._certificate is not None:
            self._certificate.encrypt(admitted)
        with admitted.socket as connection:
            head_only = False
            try:
                request = read_request(connection, head_deadline_s)
                admitted.asked = True
                head_only = request.method == "HEAD"
                response = self._respond(request)
            except BadRequestError as bad:
                response = _says(bad.status)
            send_response(connection, response, deadline_s, head_only=head_only)

    def _respond(self, request: Request) -> Response:
        health_only = self._settings.health_only
        if request.path not in ("/", "/healthz") + (() if health_only else ("/metrics",)):
            return _says(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            return _says(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
        if request.path == "/":
            return Response(HTTPStatus.OK, _PLAIN, _HEALTH_INDEX if health_only else _INDEX)
        if request.path == "/healthz":
            status, answer = judge(self._board)
            return Response(status, _JSON, json.dumps(answer).encode() + b"\n")
        if self._token is not None and not self._token.allows(request.headers.get("authorization", "")):
            return _says(HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": 'Bearer realm="fallow"'})
        from agent.metrics.collector import collect  # a host that only answers health checks never pays for it
        from fallow.exposition import negotiate

        content_type = negotiate(request.headers.get("accept", ""))
        return Response(HTTPStatus.OK, content_type, collect(self._board.latest_with_age()).render(content_type))


def _guards(settings: MetricsSettings) -> tuple[Token | None, Certificate | None]:
    """Token and certificate; loaded only if they are configured, since OpenSSL takes 4 MiB."""
    if not settings.token_file and not settings.tls_certificate:
        return None, None
    from agent.metrics import access

    token = access.Token(settings.token_file) if settings.token_file else None
    return token, access.Certificate(settings) if settings.tls_certificate else None


def _says(status: HTTPStatus, headers: dict[str, str] | None = None) -> Response:
    return Response(status, _PLAIN, f"{status.phrase}\n".encode(), headers or {})
