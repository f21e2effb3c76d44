"""The host names that the pages answer to. Without this check, a foreign site could point its own name at the pages."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from fallow.errors import ConfigError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class AllowedHosts:
    """The configured names, and always this machine's name and plain IP addresses, which no foreign site can own."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name_of(each) for each in (*names, socket.gethostname(), *LOOPBACK_NAMES)}

    def allow(self, host: str) -> bool:
        """Return whether the pages answer to this `Host` header."""
        name = name_of(host)
        return name in self._names or _is_address(name)


class Proxies:
    """The addresses and networks of `dashboard.proxies`."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises ConfigError for a text that is no address and no network."""
        self._networks = tuple(_network(each) for each in texts)

    def __contains__(self, peer: str) -> bool:
        """Return whether a connection from this address comes from a proxy."""
        address = address_of(peer)
        return address is not None and any(address in network for network in self._networks)


def address_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of a connection; None for a text that is no address.

    An IPv4 address that a dual-stack socket wraps in IPv6 is returned as IPv4.
    """
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(
            f"dashboard.proxies: '{text}' is neither an address nor a network", "write 10.0.0.5 or 10.0.0.0/24"
        ) from None


def name_of(host: str) -> str:
    """Return the name or address in `name:port`, `[address]:port` or either alone, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host.partition(":")[0] if host.count(":") == 1 else host).lower().rstrip(".")


def is_loopback(host: str) -> bool:
    """Return whether a name or address, with or without a port, is a loopback one."""
    name = name_of(host)
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
