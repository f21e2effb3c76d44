"""What `fallow import` and `fallow allocations import` share: one subcommand per kind, common flags, pseudonyms, a progress bar."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import polars as pl
from rich.console import Console
from rich.progress import track

from analytics.importers.model import PROCESSES, Imported
from fallow import config
from fallow.config import Config
from fallow.lake import Lake
from fallow.pseudonyms import KEY_FILE, SWITCH, Pseudonyms


def add_key_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pseudonym-key",
        metavar="FILE",
        help=f"replace users by pseudonyms made with this key (default: {KEY_FILE}, where {SWITCH} is on)",
    )


def pseudonyms_of(args: argparse.Namespace, settings: Config) -> Pseudonyms | None:
    """Those that the flag or the settings ask for; None where users stay as they are. Raises ConfigError without a key."""
    return Pseudonyms.from_config(settings, args.pseudonym_key)


def replaced(users: pl.Expr, seen: pl.Series, pseudonyms: Pseudonyms) -> pl.Expr:
    """The column with a pseudonym in place of each name that was seen in it; null stays null."""
    names = {name: pseudonyms.of(name) for name in seen.drop_nulls().unique()}
    return users.replace_strict(names, default=None, return_dtype=pl.String)


def pseudonymised(imported: Imported, pseudonyms: Pseudonyms | None) -> Imported:
    """The same history with pseudonyms in its lists of processes."""
    if pseudonyms is None or PROCESSES not in imported.gpu.columns:
        return imported
    lists = pl.col(PROCESSES)
    seen = imported.gpu.select(lists.explode().struct.field("user")).to_series()
    user = replaced(pl.element().struct.field("user"), seen, pseudonyms)
    gpu = imported.gpu.with_columns(lists.list.eval(pl.element().struct.with_fields(user)))
    return dataclasses.replace(imported, gpu=gpu)


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
