"""Serves the pages on a loopback port until it is told to stop."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Any

from werkzeug.serving import WSGIRequestHandler, make_server

from dashboard.app import build_app
from dashboard.people import VIEWER, Person
from dashboard.query import Query
from dashboard.source import Source
from fallow.errors import FallowError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.inputs import Inputs

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""The only addresses that are served: there is no access control yet."""

_MOST_PORTS = 50


class _QuietHandler(WSGIRequestHandler):
    """Answers without a line on the terminal per request, and without naming what serves it."""

    def version_string(self) -> str:
        return "fallow"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002  # the name in werkzeug
        """Requests are not logged; a failing callback logs its own traceback."""


def app_of(open_inputs: Callable[[], Inputs]) -> Any:
    """The dash app over what `open_inputs` names, with the ledger loaded, so that the first page comes at once."""
    source = Source(open_inputs)
    source.look(Query(), Person("", VIEWER))
    return build_app(source)


def serve(app: Any, *, host: str = LOOPBACK[0], port: int = 8050, next_free: bool = False) -> int:
    """Prints the address and serves until Ctrl-C or SIGTERM; returns 0.

    Raises UsageError for a port that cannot be, FallowError for one that is taken (`next_free` takes the next).
    """
    if not 0 <= port < 65536:
        raise UsageError(f"--port {port} is no port", "give 1 to 65535, or 0 for any free one")
    with _listen(host, port, next_free=next_free) as listening:
        app.server.test_client().get("/")  # registers the component libraries before two browsers ask at once
        server = make_server(
            host, listening.getsockname()[1], app.server, threaded=True, request_handler=_QuietHandler,
            fd=listening.fileno(),
        )  # fmt: skip
        # both by hand: a shell starts background commands with SIGINT ignored
        before = {
            number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            shown = f"[{host}]" if ":" in host else host
            print(f"\nThe pages are at http://{shown}:{server.port}/ (Ctrl-C ends them)", flush=True)
            server.serve_forever()  # returns on KeyboardInterrupt
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 0


def _listen(host: str, port: int, *, next_free: bool) -> socket.socket:
    """A listening socket: on the port, or the first free one after it."""
    last = min(port + _MOST_PORTS, 65535) if next_free and port else port
    for candidate in range(port, last + 1):
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, candidate), family=family, backlog=128)
        except OSError as error:
            if candidate == last:
                raise FallowError(
                    f"cannot serve on {host} port {candidate}: {error.strerror}",
                    "give another --port, or 0 for any free one",
                ) from error
    raise AssertionError(port)
