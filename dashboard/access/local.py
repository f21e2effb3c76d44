"""Pages that answer to this machine only."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

from dashboard.access.hosts import is_loopback
from dashboard.access.refusal import refuse
from dashboard.people import ADMIN, Person

if TYPE_CHECKING:
    from flask import Request, Response


class Local:
    """Whoever asks under a name of this machine is who runs the pages."""

    way_out = ""

    def admit(self, request: Request) -> Person | Response:
        """Who runs the pages, or 403."""
        # a foreign site can point its own name at 127.0.0.1 and read the answers: its name gives it away
        if is_loopback(request.host):
            return Person(_login(), ADMIN)
        return refuse(
            request, "these pages answer to localhost only; a reverse proxy has to send the header Host: localhost"
        )


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in a container
        return "local"
