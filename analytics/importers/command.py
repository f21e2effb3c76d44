"""`fallow import KIND ...`: reads all files, then merges them into the lake, then says what became of every row."""

from __future__ import annotations

import argparse
import json

from analytics.importers import IMPORTERS
from analytics.importers.progress import progress
from analytics.importers.publish import publish
from analytics.importers.summary import as_json, as_text
from fallow import config
from fallow.lake import Lake


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds one subcommand per importer."""
    kinds = parser.add_subparsers(metavar="KIND", required=True, dest="kind", title="kinds of history")
    for importer in IMPORTERS:
        kind = kinds.add_parser(
            importer.name,
            help=importer.summary,
            description=f"{importer.summary[0].upper()}{importer.summary[1:]}.",
            epilog=f"example: {importer.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        importer.add_arguments(kind)
        kind.add_argument("--lake", help="folder of the lake (default: lake.path of the config)")
        kind.add_argument("--config", metavar="FILE", help="config file to read instead of the usual one")
        kind.add_argument("--json", action="store_true", help="machine-readable summary")
        kind.set_defaults(importer=importer)


def run(args: argparse.Namespace) -> int:
    """Imports; nothing is written unless every file could be read."""
    settings = config.load({"lake.path": args.lake}, args.config)
    lake = Lake.at(settings.require("lake.path", "--lake"))
    bar = progress()
    imported = args.importer.read(args, bar)
    published = publish(lake, imported, bar)
    if args.json:
        print(json.dumps(as_json(imported, published, lake.root), indent=2))
    else:
        print(as_text(imported, published, lake.root))
    return 0
