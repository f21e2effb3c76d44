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
        """Raises ConfigError for an invalid header name, address or network."""
        # WSGI does not tell `_` from `-` in a header's name, and the server drops headers with an underscore
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
        """Return the person that the proxy names, or a visitor whose answer is 403."""
        if request.environ.get("REMOTE_ADDR", "") not in self._proxies:
            sentence = "these pages answer to their reverse proxy only"
            if is_for_programs(request.path):
                sentence += "; send a token of dashboard.people, or use the proxy"
            return Visitor(partial(refuse, request, sentence, why="not one of dashboard.proxies"))
        if not self._hosts.allow(request.host):
            return Visitor(partial(refuse, request, NOT_THIS_NAME))
        sentence = f"the reverse proxy did not send a valid name in {self._header}"
        try:
            name = request.headers.get(self._header, "").encode("latin-1").decode()
        except UnicodeError:
            return Visitor(partial(refuse, request, sentence, why=f"{self._header} is not UTF-8"))
        # a comma means that the proxy also passed on a header that the client sent
        fault = "is more than one" if "," in name else name_fault(name)
        if fault is not None:
            why = f"the name {shown_name(name)} in {self._header} {fault}"
            return Visitor(partial(refuse, request, sentence, why=why))
        found = self._people.person(name)
        if found is None:
            sentence = "you have no role here; ask the operator of these pages"
            return Visitor(partial(refuse, request, sentence, who=Actor(name), why="no role"), Actor(name))
        self._note(found)
        return found

    def _note(self, found: Reader) -> None:
        """Log a person's first visit since the start, and the first visit with another role."""
        if found not in self._seen and len(self._seen) < _MOST_SEEN:
            self._seen.add(found)
            audit(found.actor, f"came through the proxy as {found.described}", SIGN_IN)
