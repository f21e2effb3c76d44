"""Access behind a reverse proxy that names the user in a header."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from flask import Request, Response

from dashboard.access.audit import SIGN_IN, audit
from dashboard.access.directory import Directory
from dashboard.access.hosts import AllowedHosts
from dashboard.access.local import NOT_THIS_NAME
from dashboard.access.people import Reader
from dashboard.access.refusal import refuse
from fallow.errors import ConfigError

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LONGEST = 300
_MOST_SEEN = 10_000


class Proxy:
    """Trusts the header on connections from the proxies' own addresses, and refuses all others."""

    way_out = ""

    def __init__(self, header: str, proxies: Iterable[str], hosts: AllowedHosts, people: Directory) -> None:
        """Raises ConfigError for what is no header or no network."""
        # a name with an underscore would be the same to a WSGI application as one with a dash, and the server drops it
        if not re.fullmatch(r"[A-Za-z0-9-]+", header):
            raise ConfigError(
                f"dashboard.proxy_header '{header}' is not a header name", "use letters, digits and dashes"
            )
        self._header = header
        self._proxies = tuple(_network(each) for each in proxies)
        self._hosts = hosts
        self._people = people
        self._seen: set[Reader] = set()

    def admit(self, request: Request) -> Reader | Response:
        """The person whom the proxy names, or 403."""
        if not self._is_proxy(request.environ.get("REMOTE_ADDR", "")):
            return refuse(request, "these pages answer to their reverse proxy only", why="not one of dashboard.proxies")
        if not self._hosts.allow(request.host):
            return refuse(request, NOT_THIS_NAME)
        name = self._name(request)
        if name is None:
            return refuse(request, f"the reverse proxy did not say in {self._header} who you are")
        found = self._people.person(name)
        if found is None:
            return refuse(request, "you have no role here; ask who runs these pages", who=name, why="no role")
        self._note(found)
        return found

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        # how an IPv4 address appears on a dual-stack socket
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._proxies)

    def _name(self, request: Request) -> str | None:
        """One name: a comma means that the proxy also passed on a header that the client sent."""
        try:
            name = request.headers.get(self._header, "").encode("latin-1").decode().strip()
        except UnicodeError:
            return None
        return name if 0 < len(name) <= _LONGEST and "," not in name and name.isprintable() else None

    def _note(self, found: Reader) -> None:
        """Logs the first visit since the start, and the first with another role."""
        if found not in self._seen and len(self._seen) < _MOST_SEEN:
            self._seen.add(found)
            audit(found.name, f"came through the proxy as {found.described}", SIGN_IN)


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(
            f"dashboard.proxies: '{text}' is neither an address nor a network", "write 10.0.0.5 or 10.0.0.0/24"
        ) from None
