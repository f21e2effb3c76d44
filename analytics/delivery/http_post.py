"""One POST of JSON, and what the answer means; nothing of the address but its host is ever said."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from analytics.delivery.smtp_talk import connection_fault

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_MOST_BYTES = 4096
_REDIRECTS = (307, 308)
"""Those that repeat a POST; the others would turn it into a GET."""

_MOST_REDIRECTS = 3


@dataclass(frozen=True)
class Answer:
    """A status with its headers in lower case; None where there was no answer, `reason` then says why.

    `was_sent` is False only where the receiver cannot have got the request.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    was_sent: bool = True


def post(url: str, data: bytes, headers: Mapping[str, str], context: ssl.SSLContext, timeout_s: float) -> Answer:
    """Posts once, following redirects to the same host alone."""
    for _ in range(_MOST_REDIRECTS):
        answer = _post_once(url, data, headers, context, timeout_s)
        if answer.status is None or not 300 <= answer.status < 400:
            return answer
        there = urljoin(url, answer.headers.get("location", ""))
        if answer.status not in _REDIRECTS or urlsplit(there)[:2] != urlsplit(url)[:2]:
            return Answer(answer.status, reason="it sends its callers elsewhere, which is not followed", was_sent=False)
        url = there
    return Answer(None, reason="it sends its callers round and round", was_sent=False)


def _post_once(url: str, data: bytes, headers: Mapping[str, str], context: ssl.SSLContext, timeout_s: float) -> Answer:
    connection = _connection(url, context, timeout_s)
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # a receiver that sends a byte now and then never runs into the socket's own timeout
    timer = threading.Timer(2 * timeout_s, _cut, [connection])
    timer.daemon = True
    was_sent = False
    try:
        timer.start()
        connection.connect()
        was_sent = True
        connection.request("POST", path, body=data, headers=dict(headers))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        with contextlib.suppress(OSError, http.client.HTTPException):  # the status has said what counts
            response.read(_MOST_BYTES)
        return Answer(response.status, found)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(None, reason=_reason(error, timeout_s), was_sent=was_sent)
    finally:
        timer.cancel()
        connection.close()


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {timeout_s:g} s"
    return connection_fault(error) if isinstance(error, OSError) else "the connection broke"


def _connection(url: str, context: ssl.SSLContext, timeout_s: float) -> http.client.HTTPConnection:
    """A connection that is not open yet, through the proxy that the environment names."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    proxy = urlsplit(getproxies().get(parts.scheme, ""))
    through = proxy.hostname if proxy.hostname and not proxy_bypass(host) else None
    place, door = (through, proxy.port or 8080) if through else (host, port)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)  # loopback alone: no proxy
    connection = http.client.HTTPSConnection(place, door, timeout=timeout_s, context=context)
    if through:
        connection.set_tunnel(host, port or 443)
    return connection


def _cut(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    if isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):
            # not the method of a TLS socket, which would take its state away from under the reader
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
