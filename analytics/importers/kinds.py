"""Shared by `fallow import` and `fallow allocations import`: subcommands, flags, pseudonyms, and progress bar."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import polars as pl
from rich.console import Console
from rich.progress import track

from analytics.importers.model import PROCESSES, Imported, Kind
from fallow import config
from fallow.config import Config
from fallow.lake import Lake
from fallow.pseudonyms import KEY_FILE, SWITCH, Pseudonyms


def add_key_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pseudonym-key",
        metavar="FILE",
        help=f"replace users by pseudonyms with this key (default: {KEY_FILE}, if {SWITCH} is on)",
    )


def pseudonyms_of(args: argparse.Namespace, settings: Config) -> Pseudonyms | None:
    """Return the pseudonyms that the flag or settings ask for; None: names stay. Raises ConfigError without a key."""
    return Pseudonyms.from_config(settings, args.pseudonym_key)


def replaced(users: pl.Expr, seen: pl.Series, pseudonyms: Pseudonyms) -> pl.Expr:
    """Return the column with a pseudonym in place of each name in `seen`; null stays null."""
    names = {name: pseudonyms.of(name) for name in seen.drop_nulls().unique()}
    return users.replace_strict(names, default=None, return_dtype=pl.String)


def pseudonymised(imported: Imported, pseudonyms: Pseudonyms | None) -> Imported:
    """Return the same history with pseudonyms in its lists of processes."""
    if pseudonyms is None or PROCESSES not in imported.gpu.columns:
        return imported
    lists = pl.col(PROCESSES)
    seen = imported.gpu.select(lists.explode().struct.field("user")).to_series()
    user = replaced(pl.element().struct.field("user"), seen, pseudonyms)
    gpu = imported.gpu.with_columns(lists.list.eval(pl.element().struct.with_fields(user)))
    return dataclasses.replace(imported, gpu=gpu)


T = TypeVar("T")


def with_progress(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items; on a terminal a bar on standard error shows how many are done, and then disappears."""
    every = list(items)
    off = len(every) < 2 or not sys.stderr.isatty()
    yield from track(every, what, console=Console(stderr=True), transient=True, disable=off)


K = TypeVar("K", bound=Kind)


def add_kinds(
    parser: argparse.ArgumentParser, title: str, kinds: Iterable[K]
) -> Iterator[tuple[K, argparse.ArgumentParser]]:
    """Add a subcommand per kind. Yield each with its parser, for the command's own flags."""
    subcommands = parser.add_subparsers(metavar="KIND", required=True, title=title)
    for kind in kinds:
        subcommand = subcommands.add_parser(
            kind.name,
            help=kind.summary,
            description=f"{kind.summary[0].upper()}{kind.summary[1:]}.",
            epilog=f"example: {kind.example}",
        )
        kind.add_arguments(subcommand)
        subcommand.add_argument("--lake", help="location of the lake (default: lake.path)")
        subcommand.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
        subcommand.add_argument("--json", action="store_true", help="print the summary as JSON")
        add_key_argument(subcommand)
        yield kind, subcommand


def add_recording_flags(
    parser: argparse.ArgumentParser, tool: str, files: str, *, zone: bool = True, says_host: bool = False
) -> None:
    """Add the flags for one host's recordings: files, host, interval, and the zone of the tool's local time."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=f"{files}, plain or gzipped")
    default = " (default: as in the file)" if says_host else ""
    parser.add_argument("--host", required=not says_host, help=f"host on which {tool} ran{default}")
    if zone:
        meaning = f"the host's time zone: {tool} writes local time (default: UTC)"
        parser.add_argument("--tz", "--timezone", metavar="ZONE", dest="tz", help=meaning)
    what = "samples" if zone else "records"
    meaning = f"time between {what}, such as 10s (default: inferred)"
    parser.add_argument("--interval", metavar="DURATION", help=meaning)


def open_lake(args: argparse.Namespace) -> tuple[config.Config, Lake]:
    """Return the settings and the lake that the flags name. Raises UsageError and its kinds."""
    settings = config.load({"lake.path": args.lake}, args.config)
    return settings, Lake.at(settings.require("lake.path", "--lake"))
