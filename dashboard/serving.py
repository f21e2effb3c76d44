"""Creation of the app and its socket, and a server in this process, which `fallow demo` uses after reading its lake."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
from collections.abc import Callable
from typing import Any

from analytics.window import Inputs
from dashboard.access import LOCAL, Access
from dashboard.access.audit_trail import NO_TRAIL, Trail
from dashboard.access.people import AHEAD
from dashboard.access.refusal import UNLIMITED, Rates
from dashboard.app import build_app
from dashboard.front import Front, Limits
from dashboard.memory import Budget, budget_bytes
from dashboard.protection import HEALTH
from dashboard.query import Query
from dashboard.source import LakeSource
from fallow.errors import FallowError, UsageError
from fallow.output import show

LOOPBACK = "127.0.0.1"

_MOST_PORTS = 50
_PORT_ERRORS = (errno.EADDRINUSE, errno.EACCES)
"""Errors of the port and not of the address."""

_PATIENCE_S = 15.0
"""How long a reader waits for an answer before the page shows that it takes long."""


def app_of(
    open_inputs: Callable[[], Inputs],
    access: Access = LOCAL,
    *,
    rates: Rates = UNLIMITED,
    trail: Trail = NO_TRAIL,
    workers: int = 1,
) -> Any:
    """Return the dash app over the inputs, with the ledger loaded, so that the first page needs no wait.

    The app then follows the lake. `workers` processes share the memory that the settings allow.
    """
    budget = Budget(budget_bytes(open_inputs().settings.integer("dashboard.memory"), workers))
    source = LakeSource(open_inputs, patience_s=_PATIENCE_S, budget=budget)
    with contextlib.suppress(FallowError):  # the pages show the error until there are data
        source.refresh()
    source.look(Query(), AHEAD, findings=False)
    source.follow()
    app = build_app(source, access, rates=rates, trail=trail)
    app.server.test_client().get(HEALTH)  # makes dash finish its setup
    with app.server.test_request_context("/"):
        app.index()  # registers the component libraries before two browsers send requests at once
    return app


def serve(app: Any, *, host: str = LOOPBACK, port: int = 8050, next_free: bool = False) -> int:
    """Print the address and serve until Ctrl-C or SIGTERM; return 0.

    Raises UsageError for an invalid port, FallowError for a port in use (with `next_free` the next free port is used).
    """
    with listen(host, port, next_free=next_free) as listening:
        port = listening.getsockname()[1]
        front = Front(app.server, listening, Limits())
        # both by hand: a shell starts background commands with SIGINT ignored
        before = {
            number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            announce(host, port)
            while True:
                front.turn()
        except KeyboardInterrupt:
            front.drain(0)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 0


def announce(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    show(f"\nThe pages are at http://{shown}:{port}/ (Ctrl-C ends them)")


def listen(host: str, port: int, *, next_free: bool = False) -> socket.socket:
    """Return a listening socket on the port, or with `next_free` on the first free port from it.

    Raises UsageError for an invalid port, FallowError for a port in use.
    """
    if not 0 <= port < 65536:
        raise UsageError(f"--port {port} is not a port", "give 1 to 65535, or 0 for any free one")
    last = min(port + _MOST_PORTS, 65535) if next_free and port else port
    for candidate in range(port, last + 1):
        try:
            return _socket(host, candidate)
        except OSError as error:
            if candidate == last:
                raise FallowError(
                    f"cannot serve on {host} port {candidate}: {str(error.strerror).partition(' (')[0]}",
                    "give another --port, or 0 for any free one"
                    if error.errno in _PORT_ERRORS
                    else "give --host an address of this machine",
                ) from error
    raise AssertionError(port)


def _socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=both)
