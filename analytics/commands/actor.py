"""The flag `--as`: the person who acts through a command."""

from __future__ import annotations

import argparse


def add_actor_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag --as as `args.actor`, None without the flag."""
    parser.add_argument(
        "--as",
        dest="actor",
        default=None,  # also in parsers whose flags have no default
        metavar="NAME",
        help="your name in the record (default: your login name, which is always recorded too)",
    )
