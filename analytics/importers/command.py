"""`fallow import KIND ...`: reads all files, then merges them into the lake, then says what became of every row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from analytics.importers import IMPORTERS
from analytics.importers.kinds import add_kinds, open_lake
from analytics.importers.progress import progress
from analytics.importers.publish import publish
from analytics.importers.summary import as_json, as_text

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds one subcommand per importer."""
    for importer, subcommand in add_kinds(parser, "kinds of history", IMPORTERS):
        subcommand.set_defaults(importer=importer)


def run(args: argparse.Namespace) -> int:
    """Imports; nothing is written unless every file could be read."""
    _, lake = open_lake(args)
    bar = progress()
    imported = args.importer.read(args, bar)
    published = publish(lake, imported, bar)
    if args.json:
        print(json.dumps(as_json(imported, published, lake.root), indent=2))
    else:
        print(as_text(imported, published, lake.root))
    return 0
