"""`fallow pseudonym new-key|of|table`: create a key, print pseudonyms, and replace users in a site's tables."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
from typing import TYPE_CHECKING

from fallow import config
from fallow.csv_text import csv_text
from fallow.errors import FallowError, InputError, UsageError
from fallow.given_file import TABLE_BYTES, given_text
from fallow.output import show
from fallow.outside_text import from_csv_cell, plain
from fallow.pseudonyms import KEY_FILE, Pseudonyms

if TYPE_CHECKING:
    import argparse

_KEY_BYTES = 32
_KIND, _NAME, _USER = "kind", "name", "user"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="new-key|of|table")
    new = verbs.add_parser(
        "new-key",
        help="write a new key to a file that only you can read",
        epilog="example: fallow pseudonym new-key /etc/fallow/pseudonym.key",
    )
    new.add_argument("file", metavar="FILE", help="the new file; must not exist")
    names = verbs.add_parser(
        "of",
        help="print the pseudonyms of names",
        epilog="example: fallow pseudonym of ann ben --key /etc/fallow/pseudonym.key",
    )
    names.add_argument("names", nargs="+", metavar="NAME", help="a user's login name")
    names.add_argument("--json", action="store_true", help="print JSON")
    table = verbs.add_parser(
        "table",
        help="print a CSV table (owners, contacts, opt-outs) with pseudonyms for users",
        epilog="example: fallow pseudonym table owners-by-name.csv > /etc/fallow/owners.csv",
    )
    table.add_argument("file", metavar="FILE", help="CSV file with the columns kind and name")
    for each in (names, table):
        each.add_argument("--key", metavar="FILE", help=f"the key (default: {KEY_FILE})")
        each.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")


def run(args: argparse.Namespace) -> int:
    verbs = {"new-key": _new_key, "of": _of, "table": _table}
    verbs[args.verb](args)
    return 0


def _new_key(args: argparse.Namespace) -> None:
    try:
        descriptor = os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(_KEY_BYTES)}\n")
    except FileExistsError:
        raise FallowError(
            f"{args.file} exists, and a new key would change the pseudonyms of all users",
            "use the key in this file, or give another path",
        ) from None
    except OSError as error:
        raise FallowError(f"cannot write {args.file}: {error.strerror}", "check path and permissions") from error
    show(
        f"wrote a new key to {args.file}; give the agent's group access: chgrp fallow {args.file} && chmod 640"
        f" {args.file}"
    )


def _pseudonyms(args: argparse.Namespace) -> Pseudonyms:
    loaded = config.load({}, args.config)
    return Pseudonyms.load(args.key or loaded.require(KEY_FILE, "--key"))


def _of(args: argparse.Namespace) -> None:
    if not all(name.strip() for name in args.names):
        raise UsageError("a name is empty", "give the login names of users")
    pseudonyms = _pseudonyms(args)
    found = {name: pseudonyms.of(name) for name in args.names}
    if args.json:
        show(json.dumps(found, indent=2))
    else:
        width = max(map(len, map(plain, found)))
        show("\n".join(f"{plain(name):<{width}}  {pseudonym}" for name, pseudonym in found.items()))


def _table(args: argparse.Namespace) -> None:
    """Print the table; only the names of users change."""
    pseudonyms = _pseudonyms(args)
    text = given_text("the table", args.file, TABLE_BYTES, InputError, "utf-8-sig")
    try:
        rows = [[from_csv_cell(cell) for cell in row] for row in csv.reader(io.StringIO(text, newline=""), strict=True)]
    except csv.Error as error:
        raise InputError(f"{args.file} is not CSV: {error}", "give a CSV file in UTF-8") from error
    header = [each.strip() for each in rows[0]] if rows else []
    if not {_KIND, _NAME} <= {*header}:
        raise InputError(f"{args.file} lacks the columns kind and name", "name them in the first line")
    kind, name = header.index(_KIND), header.index(_NAME)
    for row in rows[1:]:
        if len(row) > max(kind, name) and row[kind].strip() == _USER and row[name].strip():
            row[name] = pseudonyms.of(row[name].strip())
    show(csv_text(rows[0], rows[1:]), end="")
