"""Where an inference server on this host can be asked: an address on the loopback interface and nothing else."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^\s/:?#@\[\]]+)(?::(\d{1,5}))?(/[^\s#?]*)?", re.ASCII)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Endpoint:
    """One metrics address."""

    url: str
    """As rows name it."""
    scheme: str
    host: str
    """As the server wants to see it in the Host header."""
    addresses: tuple[str, ...]
    """IP addresses to try in this order."""
    port: int
    target: str
    """The path to ask for."""


def parse_endpoints(urls: Iterable[str]) -> tuple[Endpoint, ...]:
    """The endpoints in their order, each once; raises UsageError for one that is no loopback http(s) address."""
    return tuple(dict.fromkeys(_parse(url) for url in urls))


def _parse(url: str) -> Endpoint:
    match = _URL.fullmatch(url)
    if match is None:
        raise UsageError(
            f"serving.endpoints: '{_without_secret(url)}' is not an address that can be asked",
            "write it like http://127.0.0.1:8000/metrics, without user, password and query",
        )
    scheme, name, port_text, path = match.groups()
    addresses = _loopback(name.strip("[]"))
    if not addresses:
        raise UsageError(
            f"serving.endpoints: {name} is not this host's loopback interface",
            "the agent asks only localhost, 127.0.0.0/8 and [::1]; let each host's agent ask its own servers",
        )
    port = int(port_text or _PORTS[scheme])
    if not 0 < port < 2**16:
        raise UsageError(f"serving.endpoints: {url} has no port between 1 and 65535", "write the server's own port")
    host, target = f"{name}:{port}", path or "/metrics"
    return Endpoint(f"{scheme}://{host}{target}", scheme, host, addresses, port, target)


def _loopback(name: str) -> tuple[str, ...]:
    """Addresses that surely stay on this host; a name other than localhost would have to be looked up first."""
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
    """A refused address as a message may repeat it."""
    rest = url.partition("?")[0]
    return f"...@{rest.rpartition('@')[2]}" if "@" in rest else rest
