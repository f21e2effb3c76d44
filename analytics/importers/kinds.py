"""What `fallow import` and `fallow allocations import` share: one subcommand per kind, common flags, a progress bar."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import track

from analytics.importers.pseudonymised import add_key_argument
from fallow import config
from fallow.lake import Lake

T = TypeVar("T")


def with_progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The items; on a terminal a bar on standard error shows how many are done, and then disappears."""
    every = list(items)
    off = len(every) < 2 or not sys.stderr.isatty()
    yield from track(every, what, console=Console(stderr=True), transient=True, disable=off)


class Kind(Protocol):
    """What can be imported: how it is named and told of, and its own flags."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def example(self) -> str: ...

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...


K = TypeVar("K", bound=Kind)


def add_kinds(
    parser: argparse.ArgumentParser, title: str, kinds: Iterable[K]
) -> Iterator[tuple[K, argparse.ArgumentParser]]:
    """Adds a subcommand per kind; yields each with its parser, for what the command itself wants to add."""
    subcommands = parser.add_subparsers(metavar="KIND", required=True, title=title)
    for kind in kinds:
        subcommand = subcommands.add_parser(
            kind.name,
            help=kind.summary,
            description=f"{kind.summary[0].upper()}{kind.summary[1:]}.",
            epilog=f"example: {kind.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        kind.add_arguments(subcommand)
        subcommand.add_argument("--lake", help="folder of the lake (default: lake.path of the config)")
        subcommand.add_argument("--config", metavar="FILE", help="config file to read instead of the usual one")
        subcommand.add_argument("--json", action="store_true", help="machine-readable summary")
        add_key_argument(subcommand)
        yield kind, subcommand


def open_lake(args: argparse.Namespace) -> tuple[config.Config, Lake]:
    """The settings and the lake that the flags name; raises UsageError and its kinds."""
    settings = config.load({"lake.path": args.lake}, args.config)
    return settings, Lake.at(settings.require("lake.path", "--lake"))
