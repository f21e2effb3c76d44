"""Pages that ask nobody who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.access.refusal import refuse
from dashboard.people import Person

if TYPE_CHECKING:
    from flask import Request, Response

    from dashboard.access.hosts import Hosts


class Insecure:
    """Everybody has the same role."""

    way_out = ""

    def __init__(self, role: str, hosts: Hosts) -> None:
        self._everybody = Person("everybody", role)
        self._hosts = hosts

    def admit(self, request: Request) -> Person | Response:
        """Everybody, or 403 under a name that is not these pages'."""
        if not self._hosts.allow(request.host):
            return refuse(request, NOT_THIS_NAME)
        return self._everybody


NOT_THIS_NAME = "these pages do not answer to this name; who runs them can add it to dashboard.hosts"
