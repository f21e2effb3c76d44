"""Pages that answer to this machine only."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

from flask import Response

from dashboard.people import ADMIN, Person

if TYPE_CHECKING:
    from flask import Request

_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Local:
    """Whoever asks under a name of this machine is who runs the pages."""

    def admit(self, request: Request) -> Person | Response:
        """Who runs the pages, or 403."""
        # a foreign site can point its own name at 127.0.0.1 and read the answers: its name gives it away
        name = request.host if request.host.endswith("]") else request.host.rpartition(":")[0] or request.host
        if name in _NAMES:
            return Person(_login(), ADMIN)
        return Response(
            "fallow: these pages answer to localhost only; a reverse proxy has to send the header Host: localhost\n",
            status=403,
            mimetype="text/plain",
        )


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in a container
        return "local"
