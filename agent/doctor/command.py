"""`fallow doctor`: is this host fit for the agent and for CUDA, and if not, what comes next?"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.case import Options, Result, Status
from agent.doctor.examine import as_text, counts, examine
from agent.doctor.host import Host, exists, find_user
from fallow import __version__, config
from fallow.clock import SECOND_MS
from fallow.errors import UsageError

if TYPE_CHECKING:
    import argparse

FORMAT = 1
"""Version of the JSON's shape: it counts up when a key goes or changes its meaning."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--strict", action="store_true", help="fail on warnings too")
    parser.add_argument("--lake", metavar="DIR", help="the lake to try: writes and removes one tiny file")
    parser.add_argument("--spool", metavar="DIR", help="the spool to look at")
    parser.add_argument("--user", metavar="NAME", default="", help="whose rights to look at (default: one's own)")
    parser.add_argument("--python", metavar="DIR", action="append", default=[],
                        help="a Python environment to look at besides those that are found; again for more")  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")


def run(args: argparse.Namespace) -> int:
    """Prints what was found; 1 where something is an error (with --strict also a warning), else 0.

    Raises UsageError for an environment or a user that is not there.
    """
    pythons = tuple(_environment(text) for text in args.python)
    if find_user(args.user) is None:
        raise UsageError(f"--user: there is no user {args.user}", f"look with: getent passwd {args.user}")
    settings = config.load({"lake.path": args.lake, "agent.spool": args.spool}, args.config)
    host = Host(proc=Path(settings.text("agent.proc")), sys=Path(settings.text("agent.sys")))
    options = Options(
        lake=settings.text("lake.path"),
        spool=settings.text("agent.spool"),
        user=args.user,
        pythons=pythons,
        sees_all_processes=settings.text("agent.sees_all_processes"),
        timeout_s=settings.integer("agent.call_timeout") / SECOND_MS,
    )
    results = examine(host, options)
    name = settings.text("agent.host") or socket.gethostname()
    print(_as_json(name, host, results) if args.json else _as_text(name, host, results))
    counted = counts(results)
    return 1 if counted[Status.ERROR] or (args.strict and counted[Status.WARNING]) else 0


def _environment(text: str) -> str:
    """The path of a Python environment that was named; raises UsageError where nothing can be seen there."""
    path = Path(os.path.expanduser(text))  # noqa: PTH111  # pathlib's own raises for an unknown user's home
    if not exists(path):
        raise UsageError(
            f"--python: {text} is not there, or may not be seen by this user", "give an environment or its interpreter"
        )
    return str(path)


def _as_text(name: str, host: Host, results: list[Result]) -> str:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return as_text(f"fallow doctor {__version__} on {name}, {host.now:%Y-%m-%d %H:%M} UTC", results, colour=colour)


def _as_json(name: str, host: Host, results: list[Result]) -> str:
    answer = {
        "format": FORMAT,
        "fallow": __version__,
        "host": name,
        "time": f"{host.now:%Y-%m-%dT%H:%M:%SZ}",
        "counts": {status.value: count for status, count in counts(results).items()},
        "results": [result.as_json() for result in results],
    }
    return json.dumps(answer, indent=2)
