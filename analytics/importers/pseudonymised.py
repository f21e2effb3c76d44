"""Imported users by pseudonyms, as agents write them where that is set: the same person has one name in the lake."""

from __future__ import annotations

import argparse
import dataclasses

import polars as pl

from analytics.importers.model import PROCESSES, Imported
from fallow.config import Config
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
