"""`fallow lake export`: bring Delta Lake tables up to date with the ledger, for Spark, Trino, Snowflake and others."""

from __future__ import annotations

import argparse
import dataclasses
import json

from analytics.export.export import Exported, export
from analytics.export.source import LedgerSource, current_ledger
from analytics.export.tables import GPU_TERMS
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.workers import Workers
from analytics.money.window_money import open_owners
from analytics.progress import bar
from analytics.scope import Scope, add_scope_arguments
from fallow.errors import UsageError
from fallow.lake_marker import read_marker
from fallow.lake_verbs import add_lake_flags, lake_of, settings
from fallow.output import show
from fallow.outside_text import visible
from fallow.stores import open_store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lake_flags(parser)
    parser.add_argument(
        "--to",
        metavar="PLACE",
        required=True,
        help="folder, or s3://, gs:// or az:// prefix of the tables; not in a lake",
    )
    add_scope_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the days that changed, and print what was done; return 0."""
    config, lake, scope = settings(args), lake_of(args).require_known(), Scope.of(args)
    place = open_store(args.to).root
    if f"{place}/".startswith(f"{lake.root}/"):
        raise UsageError(f"{place} is inside the lake", "name a place outside of it with --to")
    marker = read_marker(lake.store)
    with bar("ledger") as progress:
        kept = current_ledger(lake, LedgerSettings.from_config(config), Workers.from_config(config), progress)
    source = LedgerSource(kept, scope, open_owners(config))
    with bar("days") as progress:
        done = export(source, place, "" if marker is None else marker.id, progress)
    show(json.dumps({"tables": [dataclasses.asdict(each) for each in done]}, indent=2) if args.json else _text(done))
    return 0


def _text(done: list[Exported]) -> str:
    return "\n".join(visible(_line(each)) for each in done)


def _line(each: Exported) -> str:
    if each.table == GPU_TERMS.name:
        return f"{each.address}: {f'{each.rows} rows written' if each.written else 'unchanged'}"
    written = f"{len(each.written)} days written with {each.rows} rows"
    return f"{each.address}: {written}, {len(each.removed)} removed, {each.unchanged} unchanged"
