"""`fallow dashboard`: serves the pages over a lake, to this machine only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.inputs import add_common_arguments, open_inputs
from dashboard.serving import LOOPBACK, app_of, serve
from fallow.errors import UsageError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    parser.add_argument(
        "--host", default=LOOPBACK[0], metavar="ADDRESS", help=f"one of {', '.join(LOOPBACK)} (default {LOOPBACK[0]})"
    )
    parser.add_argument("--port", type=int, default=8050, metavar="N", help="the port (default 8050; 0: any free one)")


def run(args: argparse.Namespace) -> int:
    """Serves until Ctrl-C."""
    if args.host not in LOOPBACK:
        raise UsageError(
            f"--host {args.host} would let others in, and these pages have no access control yet",
            f"serve on {LOOPBACK[0]} and reach it through `ssh -L 8050:{LOOPBACK[0]}:8050 HOST` or a reverse proxy "
            "on the same machine that asks who it is",
        )
    open_inputs(args).lake.require()
    # the window is read again with every page: `--since 7d` means the seven days before now, not before the start
    return serve(app_of(lambda: open_inputs(args)), host=args.host, port=args.port)
