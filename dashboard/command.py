"""`fallow dashboard`: serves the pages over a lake, to this machine or to readers who sign in."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from dataclasses import dataclass
from typing import Any

from analytics.window import add_common_arguments, open_inputs
from dashboard.access import Access
from dashboard.access.audit import show_log
from dashboard.access.audit_trail import Trail, trail_of
from dashboard.access.choose import access_of
from dashboard.access.hosts import is_loopback
from dashboard.access.refusal import Rates, rates_of
from dashboard.access.session_list import add_verb, run_sessions
from dashboard.front import Limits, limits_of
from dashboard.query import DEFAULT_SPAN
from dashboard.serving import LOOPBACK, app_of, listen
from dashboard.wsgi import serve_workers
from fallow.config import Config
from fallow.errors import FallowError, UsageError
from fallow.output import say

_MOST_WORKERS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common_arguments(parser, since=DEFAULT_SPAN)
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=(
            f"address to serve on (default: {LOOPBACK}, this machine only); other addresses need a sign-in,"
            " docs/dashboard.md"
        ),
    )
    parser.add_argument("--port", type=int, default=8050, metavar="N", help="port (default: 8050; 0: any free port)")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes, each with eight threads and the ledger in memory (default: 1)",
    )
    parser.add_argument(
        "--health-port",
        type=int,
        metavar="N",
        help="port for /healthz alone, in its own process, for the probes of a cluster (default: none)",
    )
    parser.add_argument("--insecure", action="store_true", help="show all data to anyone who can reach the address")
    add_verb(parser.add_subparsers(dest="verb", metavar="sessions", title="verbs"))


def run(args: argparse.Namespace) -> int:
    """Serve the pages until Ctrl-C or SIGTERM, or run the verb; return the exit code. SIGHUP rereads the settings."""
    if args.verb:
        return run_sessions(args)
    if not 1 <= args.workers <= _MOST_WORKERS:
        raise UsageError(f"--workers {args.workers} is not a number of processes", f"give 1 to {_MOST_WORKERS}")
    show_log()
    pages = _Pages(args)
    if (code := _missing_lake_code(args)) != 0:
        return code
    listening = listen(args.host, args.port)
    health = None if args.health_port is None else listen(args.host, args.health_port)
    if args.insecure:
        say(f"--insecure: everybody who can reach {args.host} sees everything, without a sign-in")
    return serve_workers(pages.make, pages.renew, pages.limits, listening, workers=args.workers, health=health)


@dataclass(frozen=True)
class _Choice:
    """The flags' and settings' choice of access, rates, audit trail and limits."""

    access: Access
    rates: Rates
    trail: Trail
    limits: Limits


class _Pages:
    """The pages that the flags ask for, with the access from the last valid settings."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Raises UsageError and its kinds for invalid flags and settings."""
        self._args = args
        self._choice = self._new_choice()

    def make(self) -> Any:
        """Return the app. Its window moves with the data: `--since 7d` ends with the newest row, not at app start."""
        chosen = self._choice
        return app_of(
            lambda: open_inputs(self._args),
            chosen.access,
            rates=chosen.rates,
            trail=chosen.trail,
            workers=self._args.workers,
        )

    def limits(self) -> Limits:
        return self._choice.limits

    def renew(self) -> None:
        """Read the settings again. Invalid settings are reported and change nothing."""
        try:
            self._choice = self._new_choice()
        except FallowError as error:
            say(f"{error}; the access stays unchanged")

    def _new_choice(self) -> _Choice:
        settings: Config = open_inputs(self._args).settings
        host = self._args.host
        access = access_of(settings, address=host, local=is_loopback(host), insecure=self._args.insecure)
        return _Choice(access, rates_of(settings), trail_of(settings.text("dashboard.audit")), limits_of(settings))


def _missing_lake_code(args: argparse.Namespace) -> int:
    """Return 0 where there is a lake; else report the error and return its exit code.

    Runs in a process of its own, since a client of an object store starts threads.
    """
    asking = multiprocessing.get_context("fork").Process(target=_require_lake, args=(args,))
    asking.start()
    asking.join()
    return max(asking.exitcode or 0, 0)


def _require_lake(args: argparse.Namespace) -> None:
    try:
        open_inputs(args).lake.require()
    except FallowError as error:
        say(str(error))
        sys.exit(error.exit_code)
