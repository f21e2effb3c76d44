"""Programs that read with a token: scripts, assistants and Prometheus, at the paths for programs."""

from __future__ import annotations

from functools import partial

from flask import Request, Response

from dashboard.access import Access
from dashboard.access.directory import Directory
from dashboard.access.hosts import AllowedHosts
from dashboard.access.local import NOT_THIS_NAME
from dashboard.access.people import Reader
from dashboard.access.refusal import Visitor, refuse

API, MCP, METRICS = "/api/", "/mcp", "/metrics"

_UNKNOWN = (
    "this token is unknown; compare its SHA-256 with dashboard.people, and let no proxy forward an Authorization header"
)


def is_for_programs(path: str) -> bool:
    """Return whether a path is for programs, so that a token opens it."""
    return path in (MCP, METRICS) or path.startswith(API)


class WithTokens:
    """Admits programs by their token from any address, and all other readers as `people_access` does.

    An unknown token is always refused, at any path: a program with a mistyped token must not read as the person that a
    proxy names.
    """

    def __init__(self, people_access: Access, people: Directory, hosts: AllowedHosts) -> None:
        self.people_access, self._people, self._hosts = people_access, people, hosts
        self.way_out = people_access.way_out

    def admit(self, request: Request) -> Reader | Visitor:
        """Return the program that a token names, else the reader or visitor of `people_access`."""
        scheme, *token = request.headers.get("Authorization", "").split(maxsplit=1) or [""]
        if scheme.lower() != "bearer":
            return self.people_access.admit(request)
        found = self._people.program("".join(token).strip())
        if found is None:
            return Visitor(partial(_refuse_token, request))
        if not is_for_programs(request.path):
            return self.people_access.admit(request)
        return found if self._hosts.allow(request.host) else Visitor(partial(refuse, request, NOT_THIS_NAME))


def _refuse_token(request: Request) -> Response:
    refusal = refuse(request, _UNKNOWN, status=401)
    refusal.headers["WWW-Authenticate"] = "Bearer"
    return refusal
