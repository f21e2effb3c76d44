"""`fallow dashboard`: serves the pages over a lake, to this machine or to those who may see them."""

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
from dashboard.serving import LOOPBACK, app_of, listen
from dashboard.wsgi import serve_workers
from fallow.config import Config
from fallow.errors import FallowError, UsageError
from fallow.output import say

_MOST_WORKERS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"the address to serve on (default {LOOPBACK}: this machine only); others need a sign-in, docs/dashboard.md",
    )
    parser.add_argument("--port", type=int, default=8050, metavar="N", help="the port (default 8050; 0: any free one)")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes, each with eight threads and the ledger in memory (default 1)",
    )
    parser.add_argument(
        "--health-port",
        type=int,
        metavar="N",
        help="a port that answers /healthz alone, from a process of its own, as the probes of a cluster want it (default: none)",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="show everything to everybody who can reach the address"
    )
    add_verb(parser.add_subparsers(dest="verb", metavar="sessions", title="who is signed in"))


def run(args: argparse.Namespace) -> int:
    """Serves until Ctrl-C or SIGTERM, while SIGHUP reads the settings again; or does what the verb says."""
    if args.verb:
        return run_sessions(args)
    if not 1 <= args.workers <= _MOST_WORKERS:
        raise UsageError(f"--workers {args.workers} is no number of processes", f"give 1 to {_MOST_WORKERS}")
    show_log()
    pages = _Pages(args)
    if (code := _lake_missing(args)) != 0:
        return code
    listening = listen(args.host, args.port)
    health = None if args.health_port is None else listen(args.host, args.health_port)
    if args.insecure:
        say(f"--insecure: everybody who can reach {args.host} sees everything, and is not asked who they are")
    return serve_workers(pages.make, pages.renew, pages.limits, listening, workers=args.workers, health=health)


@dataclass(frozen=True)
class _Chosen:
    """What the flags and settings say of who may come in, how often, and what is kept of it."""

    access: Access
    rates: Rates
    trail: Trail
    limits: Limits


class _Pages:
    """What the flags ask for, with the access that the settings gave when they were last right."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Raises UsageError and its kinds for wrong flags and settings."""
        self._args = args
        self._chosen = self._choose()

    def make(self) -> Any:
        """The app. The window is read again with every page: `--since 7d` ends with the data as they are then, not at the start."""
        chosen = self._chosen
        return app_of(
            lambda: open_inputs(self._args),
            chosen.access,
            rates=chosen.rates,
            trail=chosen.trail,
            workers=self._args.workers,
        )

    def limits(self) -> Limits:
        return self._chosen.limits

    def renew(self) -> None:
        """Reads the settings again; wrong ones are said and change nothing."""
        try:
            self._chosen = self._choose()
        except FallowError as error:
            say(f"{error}; who may ask stays as it was")

    def _choose(self) -> _Chosen:
        settings: Config = open_inputs(self._args).settings
        host = self._args.host
        access = access_of(settings, address=host, local=is_loopback(host), insecure=self._args.insecure)
        return _Chosen(access, rates_of(settings), trail_of(settings.text("dashboard.audit")), limits_of(settings))


def _lake_missing(args: argparse.Namespace) -> int:
    """Says that there is no lake, and returns the exit code; 0 where there is one.

    In a process of its own, for asking an object store starts threads.
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
