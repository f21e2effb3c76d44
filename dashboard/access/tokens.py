"""Programs that read by a token: scripts, assistants and Prometheus, at the paths that are made for them."""

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
    "this token is unknown; compare its SHA-256 with dashboard.people, and let no proxy pass an Authorization header on"
)


def is_for_programs(path: str) -> bool:
    """Whether a path is one of those that programs ask for, and that a token opens."""
    return path in (MCP, METRICS) or path.startswith(API)


class WithTokens:
    """Lets programs in by their token, wherever they ask from, and all others as `people_access` does.

    A token that no line of dashboard.people has is refused, whatever else the request carries and wherever it asks: a program
    with a mistyped token does not read as the person whom a proxy names.
    """

    def __init__(self, people_access: Access, people: Directory, hosts: AllowedHosts) -> None:
        self.people_access, self._people, self._hosts = people_access, people, hosts
        self.way_out = people_access.way_out

    def admit(self, request: Request) -> Reader | Visitor:
        """The program that a token names, else what the other way in says."""
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
