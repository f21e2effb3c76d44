"""Access behind a reverse proxy that names the user in a header."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from flask import Request

from dashboard.access.audit import SIGN_IN, audit
from dashboard.access.directory import Directory
from dashboard.access.hosts import AllowedHosts, Proxies
from dashboard.access.local import NOT_THIS_NAME
from dashboard.access.people import Reader
from dashboard.access.refusal import Visitor, refuse
from dashboard.access.tokens import is_for_programs
from fallow.actors import Actor, name_fault, shown_name
from fallow.errors import ConfigError

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
        self._proxies = Proxies(proxies)
        self._hosts = hosts
        self._people = people
        self._seen: set[Reader] = set()

    def admit(self, request: Request) -> Reader | Visitor:
        """The person whom the proxy names, or 403."""
        if request.environ.get("REMOTE_ADDR", "") not in self._proxies:
            said = "these pages answer to their reverse proxy only"
            if is_for_programs(request.path):
                said += "; send a token of dashboard.people, or ask the proxy"
            return Visitor(partial(refuse, request, said, why="not one of dashboard.proxies"))
        if not self._hosts.allow(request.host):
            return Visitor(partial(refuse, request, NOT_THIS_NAME))
        said = f"the reverse proxy did not say in {self._header} who you are"
        try:
            name = request.headers.get(self._header, "").encode("latin-1").decode()
        except UnicodeError:
            return Visitor(partial(refuse, request, said, why=f"{self._header} is not UTF-8"))
        # a comma means that the proxy also passed on a header that the client sent
        fault = "is more than one" if "," in name else name_fault(name)
        if fault is not None:
            return Visitor(partial(refuse, request, said, why=f"the name {shown_name(name)} in {self._header} {fault}"))
        found = self._people.person(name)
        if found is None:
            said = "you have no role here; ask who runs these pages"
            return Visitor(partial(refuse, request, said, who=Actor(name), why="no role"), Actor(name))
        self._note(found)
        return found

    def _note(self, found: Reader) -> None:
        """Logs the first visit since the start, and the first with another role."""
        if found not in self._seen and len(self._seen) < _MOST_SEEN:
            self._seen.add(found)
            audit(found.actor, f"came through the proxy as {found.described}", SIGN_IN)
