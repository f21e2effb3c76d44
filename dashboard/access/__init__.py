"""Who asks: the local user, whoever a reverse proxy names, or whoever signs in with OpenID Connect. Imports no page."""

from __future__ import annotations

from typing import Protocol

from flask import Request

from dashboard.access.local import Local
from dashboard.access.people import Reader
from dashboard.access.refusal import Visitor

RETURN = "/sign-in/return"
"""The path of the return from a provider: what comes there has the provider asked about it."""


class Access(Protocol):
    """One way of finding out who asks; at `way_out` a session ends, empty where there is none."""

    way_out: str

    def admit(self, request: Request) -> Reader | Visitor:
        """Who it is, or how they are answered instead; asks nobody else and writes nothing down about whoever is refused."""
        ...


LOCAL: Access = Local()
"""On a loopback address: whoever can reach it is on this machine."""
