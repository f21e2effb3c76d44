"""An HTTP/1.1 client with little memory: requests, and answers with limits of time and size.

`http.client` would cost the supervisor 5.4 MiB and `urllib.request` 7.2 MiB of resident memory. This module costs none,
because its imports are loaded anyway. It supports the bodies of metrics endpoints: of a given length, in chunks, or up
to the end of the connection. It sends no credentials, and follows a redirect only to another path of the same server.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.clock import seconds_left
from fallow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from ssl import SSLSocket

LARGEST_BYTES = 4 * 2**20
"""Limit of a body; the largest body of a real server so far is a twentieth of it."""

_LARGEST_HEAD_BYTES = 2**15
_BLOCK_BYTES = 2**16


class UnreachableError(Exception):
    """There was no answer, or an incomplete one. The message names the cause and changes only with the cause."""


class UnusableError(Exception):
    """The answer was not metrics; the message describes it."""


class ReceivedAnswer:
    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._pending = b""
        self.address: str = connection.getpeername()[0]

    def head(self) -> tuple[int, dict[str, str]]:
        """Return status and headers, with names in lower case; raises UnusableError where the answer is not HTTP."""
        version, _, after_version = self._line().partition(" ")
        status = after_version[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (status.isdigit() and len(status) == 3):
            raise UnusableError("it does not speak HTTP/1.1")
        headers: dict[str, str] = {}
        size = 0
        while line := self._line():
            size += len(line)
            if size > _LARGEST_HEAD_BYTES:
                raise UnusableError("its HTTP header does not end")
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(status), headers

    def body(self, headers: dict[str, str]) -> Iterator[bytes]:
        """Yield the body in blocks. Raises UnusableError if compressed or too large, UnreachableError if incomplete."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise UnusableError("it sends compressed answers, which were not requested")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            blocks = self._chunks()
        elif "content-length" in headers:
            blocks = self._exactly(_length(headers["content-length"], 10))
        else:
            blocks = self._to_the_end()
        size = 0
        for block in blocks:
            size += len(block)
            if size > LARGEST_BYTES:
                raise UnusableError(f"it sent more than {LARGEST_BYTES // 2**20} MiB")
            yield block

    def _chunks(self) -> Iterator[bytes]:
        while length := _length(self._line().partition(";")[0], 16):
            yield from self._exactly(length)
            if self._line():
                raise UnusableError("its chunks do not have their stated length")

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            if not self._pending and not self._receive():
                raise UnreachableError("it closed the connection in the middle of its answer")
            block, self._pending = self._pending[:length], self._pending[length:]
            length -= len(block)
            yield block

    def _to_the_end(self) -> Iterator[bytes]:
        while self._pending or self._receive():
            block, self._pending = self._pending, b""
            yield block

    def _line(self) -> str:
        while b"\n" not in self._pending:
            if len(self._pending) > _LARGEST_HEAD_BYTES:
                raise UnusableError("it does not speak HTTP/1.1")
            if not self._receive():
                raise UnreachableError("it closed the connection in the middle of its answer")
        line, _, self._pending = self._pending.partition(b"\n")
        return line.rstrip(b"\r").decode("latin-1")

    def _receive(self) -> bool:
        self._connection.settimeout(seconds_left(self._deadline_s))
        more = self._connection.recv(_BLOCK_BYTES)
        self._pending += more
        return bool(more)


def _length(text: str, base: int) -> int:
    digits = text.strip().lower()
    allowed = "0123456789abcdef"[:base]
    if not digits or len(digits) > 16 or digits.strip(allowed):
        raise UnusableError("it does not state the length of its answer")
    return int(digits, base)


URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^\s/:?#@\[\]]+)(?::(\d{1,5}))?(/[^\s#?]*)?", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 500


@dataclass(frozen=True)
class Endpoint:
    url: str
    """The endpoint's name in rows."""
    scheme: str
    host: str
    """The value of the Host header."""
    addresses: tuple[str, ...]
    """IP addresses to try in this order."""
    port: int
    target: str
    """The path of the request."""


def parse_endpoints(urls: Iterable[str]) -> tuple[Endpoint, ...]:
    """Return the endpoints in order, once each; raises UsageError for one that is no loopback http(s) address."""
    return tuple(dict.fromkeys(_parse(url) for url in urls))


def _parse(url: str) -> Endpoint:
    match = URL.fullmatch(url)
    if match is None:
        raise UsageError(
            f"serving.endpoints: '{_without_secret(url)}' is not a valid address",
            "write it like http://127.0.0.1:8000/metrics, without user, password and query",
        )
    scheme, name, port_text, path = match.groups()
    addresses = _loopback(name.strip("[]"))
    if not addresses:
        raise UsageError(
            f"serving.endpoints: {name} is not this host's loopback interface",
            "the agent queries only localhost, 127.0.0.0/8 and [::1]; let every host's agent query its own servers",
        )
    port = int(port_text or _PORTS[scheme])
    if not 0 < port < 2**16:
        raise UsageError(f"serving.endpoints: {url} has no port between 1 and 65535", "write the server's own port")
    host, target = f"{name}:{port}", path or "/metrics"
    return Endpoint(f"{scheme}://{host}{target}", scheme, host, addresses, port, target)


def pod_endpoint(url: str) -> Endpoint | None:
    """Return the endpoint at a pod's IP address; None for a URL of another form."""
    match = URL.fullmatch(url)
    if match is None or len(url) > _LONGEST_URL or not (url.isascii() and url.isprintable()):
        return None
    scheme, name, port, path = match.groups()
    address = name.strip("[]")
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except OSError:
        return None
    valid = port is not None and 0 < int(port) < 2**16
    return Endpoint(url, scheme, f"{name}:{port}", (address,), int(port), path or "/") if valid else None


def _loopback(name: str) -> tuple[str, ...]:
    """Return addresses that surely stay on this host. Names except localhost are refused: they need a lookup."""
    if name.lower() == "localhost":
        return ("127.0.0.1", "::1")
    try:
        if socket.inet_pton(socket.AF_INET, name)[0] == 127:
            return (name,)
    except OSError:
        pass
    try:
        if socket.inet_pton(socket.AF_INET6, name) == bytes(15) + b"\1":
            return ("::1",)
    except OSError:
        pass
    return ()


def _without_secret(url: str) -> str:
    """Return a refused address in a form that a message may contain."""
    address = url.partition("?")[0]
    return f"...@{address.rpartition('@')[2]}" if "@" in address else address


_MOST_REDIRECTS = 2
_REDIRECTS = (301, 302, 307, 308)
_ACCEPT = "text/plain;version=0.0.4, */*;q=0.1"


def get(endpoint: Endpoint, timeout_s: float, take: Callable[[bytes], None], redirects: int = _MOST_REDIRECTS) -> str:
    """Pass the body to `take` block by block, and return the IP address that answered; follow at most `redirects`.

    Raises UnreachableError and UnusableError; blocks before an error are not a complete answer.
    """
    deadline_s = time.monotonic() + timeout_s
    target = endpoint.target
    for _ in range(redirects + 1):
        with _connect(endpoint, deadline_s) as connection:
            answer = ReceivedAnswer(connection, deadline_s)
            try:
                _send(connection, endpoint, target, deadline_s)
                status, headers = answer.head()
                if status == 200:
                    for block in answer.body(headers):
                        take(block)
                    return answer.address
            except TimeoutError:
                raise UnreachableError(f"no complete answer within {timeout_s:g} s") from None
            except OSError as error:
                raise UnreachableError(f"the connection broke ({error.strerror or error})") from None
        if status not in _REDIRECTS or not redirects:
            raise UnusableError(f"it answered with HTTP status {status}")
        target = _same_server(endpoint, headers.get("location", ""))
    raise UnusableError("it redirects too often")


def _connect(endpoint: Endpoint, deadline_s: float) -> socket.socket:
    reason = ""
    for address in endpoint.addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # a host without IPv6
            reason = reason or str(error.strerror)
            continue
        try:
            connection.settimeout(seconds_left(deadline_s))
            connection.connect((address, endpoint.port))
            return _secured(connection) if endpoint.scheme == "https" else connection
        except OSError as error:
            connection.close()
            reason = reason or (
                "no answer in time" if isinstance(error, TimeoutError) else str(error.strerror or error)
            )
    raise UnreachableError(f"no connection ({reason})")


def _secured(connection: socket.socket) -> SSLSocket:
    """Return a TLS connection without a check of the certificate.

    The certificate has the server's public name, never the loopback address. No secret is sent, and a program that
    could answer in the server's place on this port could do so without TLS too.
    """
    import ssl  # 4 MiB, for https only

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection)


def _send(connection: socket.socket, endpoint: Endpoint, target: str, deadline_s: float) -> None:
    lines = (
        f"GET {target} HTTP/1.1",
        f"Host: {endpoint.host}",
        "User-Agent: fallow-agent",
        f"Accept: {_ACCEPT}",
        "Connection: close",
    )
    connection.settimeout(seconds_left(deadline_s))
    connection.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())


def _same_server(endpoint: Endpoint, location: str) -> str:
    """Return the path of a redirect; raises UnusableError where it leads to another server."""
    own = f"{endpoint.scheme}://{endpoint.host}/"
    target = "/" + location[len(own) :] if location.startswith(own) else location
    if not target.startswith("/") or target.startswith("//") or not target.isascii() or not target.isprintable():
        raise UnusableError("it redirects to another server")
    return target.replace(" ", "%20")
