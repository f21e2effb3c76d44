"""Ways to identify the reader: as the local user, by a proxy, or by OpenID Connect. Imports no page."""

from __future__ import annotations

from typing import Protocol

from flask import Request

from dashboard.access.local import Local
from dashboard.access.people import Reader
from dashboard.access.refusal import Visitor

RETURN = "/sign-in/return"
"""The path to which a provider sends a browser back. A request to this path makes the pages ask the provider."""


class Access(Protocol):
    """One way to identify the reader of a request.

    Attributes:
        way_out: the path that ends a session; empty where there are no sessions.
    """

    way_out: str

    def admit(self, request: Request) -> Reader | Visitor:
        """Return the reader, or the visitor with the answer that they get instead.

        Contacts no other service, and does not log a refusal: the visitor's `answer` does both.
        """
        ...


LOCAL: Access = Local()
"""On a loopback address, which only this machine can reach."""
