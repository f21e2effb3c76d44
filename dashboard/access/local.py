"""Access without a sign-in: on loopback for the local user, and with --insecure for everybody."""

from __future__ import annotations

from functools import partial

from flask import Request

from dashboard.access.hosts import AllowedHosts, is_loopback
from dashboard.access.people import ADMIN, Reader
from dashboard.access.refusal import Visitor, refuse
from fallow.actors import ANONYMOUS
from fallow.os_user import login_name


class Insecure:
    way_out = ""

    def __init__(self, role: str, hosts: AllowedHosts) -> None:
        self._everybody = Reader("everybody", role, kind=ANONYMOUS)
        self._hosts = hosts

    def admit(self, request: Request) -> Reader | Visitor:
        """Return the reader `everybody`, or 403 where the request names a host that is not allowed."""
        if not self._hosts.allow(request.host):
            return Visitor(partial(refuse, request, NOT_THIS_NAME))
        return self._everybody


NOT_THIS_NAME = "these pages do not answer to this host name; their operator can add it to dashboard.hosts"


class Local:
    """Every request under a loopback name is from the user who runs the pages."""

    way_out = ""

    def __init__(self) -> None:
        name = login_name()
        self._reader = Reader("local", ADMIN, kind=ANONYMOUS) if name is None else Reader(name, ADMIN)

    def admit(self, request: Request) -> Reader | Visitor:
        """Return the user who runs the pages as an admin, or 403."""
        # a foreign site can point its own name at 127.0.0.1 and read the answers: the Host header shows that name
        if is_loopback(request.host):
            return self._reader
        sentence = "these pages answer to localhost only; a reverse proxy must send the header Host: localhost"
        return Visitor(partial(refuse, request, sentence))
