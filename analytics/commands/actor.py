"""The flag `--as`: who acts by a command."""

from __future__ import annotations

import argparse


def add_actor_argument(parser: argparse.ArgumentParser) -> None:
    """Gives `actor`; None where it is left out."""
    parser.add_argument(
        "--as",
        dest="actor",
        default=None,  # also where a parser leaves out what is not given
        metavar="NAME",
        help="who you are (default: your login name, which is recorded beside it)",
    )
