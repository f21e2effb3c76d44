"""The host names that the pages answer to: without this check, a foreign site could point its own name at them."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class AllowedHosts:
    """The configured names. This machine's own name and plain IP addresses, which nobody else can own, are always allowed."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name_of(each) for each in (*names, socket.gethostname(), *LOOPBACK_NAMES)}

    def allow(self, host: str) -> bool:
        """Whether the pages answer to this `Host` header."""
        name = name_of(host)
        return name in self._names or _is_address(name)


def name_of(host: str) -> str:
    """The name or address in `name:port`, `[address]:port` or either alone; lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host.partition(":")[0] if host.count(":") == 1 else host).lower().rstrip(".")


def is_loopback(host: str) -> bool:
    """Whether a name or address, with a port or without, is this machine talking to itself."""
    name = name_of(host)
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
