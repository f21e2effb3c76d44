"""`fallow allocations import KIND ...` brings allocations into the lake, `fallow allocations list` shows them and checks them."""

from __future__ import annotations

import argparse
import dataclasses
import json

import polars as pl

from analytics.allocations import check, listing, summary
from analytics.allocations.csv_file import CsvFile
from analytics.allocations.kubernetes import Kubernetes
from analytics.allocations.model import AllocationSource, KnownHosts, Surroundings
from analytics.allocations.newest_row import newest_row_ms
from analytics.allocations.publish import publish_allocations
from analytics.allocations.slurm import Slurm
from analytics.frames import read_frame
from analytics.importers.kinds import add_kinds, open_lake
from analytics.importers.pseudonymised import pseudonyms_of, replaced
from analytics.language.plain_text import folded, page_columns
from analytics.window import add_common_arguments, load_window_ledger, open_inputs, say_left_out
from fallow import schema
from fallow.clock import SystemClock, Window, format_ms
from fallow.csv_text import csv_text
from fallow.errors import EmptyLakeError
from fallow.output import say_lines, show

SOURCES: tuple[AllocationSource, ...] = (Slurm(), Kubernetes(), CsvFile())
"""Every source, in the order in which `fallow allocations import --help` lists them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True, title="verbs")
    importing = verbs.add_parser("import", help="bring allocations into the lake", allow_abbrev=False)
    for source, kind in add_kinds(importing, "kinds of allocations", SOURCES):
        kind.add_argument("--replace", action="store_true",
                          help="put these in the place of allocations that were imported with another time zone")  # fmt: skip
        kind.set_defaults(source=source, verb=_import)
    shown = verbs.add_parser(
        "list", help="show the allocations of a window", allow_abbrev=False,
        epilog="example: fallow allocations list --lake /srv/lake --since 7d --check",
    )  # fmt: skip
    add_common_arguments(shown)
    form = shown.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument("--csv", action="store_true", help="as a table for other programs")
    shown.add_argument("--check", action="store_true", help="compare with what was measured (builds the ledger)")
    shown.set_defaults(verb=_list)


def run(args: argparse.Namespace) -> int:
    code: int = args.verb(args)
    return code


def _import(args: argparse.Namespace) -> int:
    """Imports; nothing is written unless everything could be read."""
    settings, lake = open_lake(args)
    hosts = KnownHosts.of(lake)
    say_left_out(lake)
    pseudonyms = pseudonyms_of(args, settings)
    found = args.source.read(args, Surroundings(hosts, settings))
    if pseudonyms is not None:
        rows, requests = (
            frame.with_columns(replaced(pl.col("user"), frame["user"], pseudonyms))
            for frame in (found.rows, found.requests)
        )
        found = dataclasses.replace(found, rows=rows, requests=requests)
    read, published = publish_allocations(lake, found, replace=args.replace)
    if args.json:
        show(json.dumps(summary.as_json(read, published, lake.root), indent=2))
    else:
        show(summary.as_text(read, published, lake.root))
    return 0


def _list(args: argparse.Namespace) -> int:
    """Shows the allocations of the window; with --check also where they and the measurements do not meet."""
    inputs = open_inputs(args)
    files = inputs.lake.require().files("claim")
    if not files:
        raise EmptyLakeError(
            f"the lake at {inputs.lake.root} holds no allocations yet",
            "bring them in with `fallow allocations import`; agents on Kubernetes nodes write theirs by themselves",
        )
    allocations = read_frame(files, schema.CLAIM, None, inputs.lake.left_out.leave_out)
    measured_ms = newest_row_ms(inputs.lake) or SystemClock().now_ms()
    ledger = load_window_ledger(inputs) if args.check or inputs.back else None
    window = inputs.window if ledger is None else ledger.window
    say_left_out(inputs.lake, ledger)
    table = listing.allocations_in(allocations, window, measured_ms)
    if not table:
        raise _nothing(inputs.lake.root, window, allocations)
    checked = None
    if args.check and ledger is not None:
        whole = ledger.whole
        checked = check.check(allocations, ledger.inside.stretches, whole.stretches, whole.lifetimes, files)
    if args.json:
        content = listing.as_json(table) | ({} if checked is None else {"check": check.as_json(checked)})
        show(json.dumps(content, indent=2))
    elif args.csv:
        show(csv_text(listing.COLUMNS, map(listing.values, table)), end="")
        if checked is not None:
            say_lines(check.as_text(checked))  # the table's shape is fixed
    else:
        width = page_columns()
        blocks = [listing.as_text(table, window, measured_ms, width)]
        if checked is not None:
            blocks.append(folded(check.as_text(checked), width))
        show("\n\n".join(blocks))
    return 0


def _nothing(root: str, window: Window, allocations: pl.DataFrame) -> EmptyLakeError:
    """What to say of a window in which nothing was allocated."""
    since_ms, until_ms = window.since_ms, window.until_ms
    between = [
        "its beginning" if since_ms is None else format_ms(since_ms),
        "its end" if until_ms is None else format_ms(until_ms),
    ]
    if allocations.is_empty():
        return EmptyLakeError(
            f"the claim files of the lake at {root} hold no rows",
            "bring them in again with `fallow allocations import`; `fallow lake check` names files that are left out",
        )
    known = allocations.select(first=pl.col("time").min(), last=pl.max_horizontal("time", "end").max()).row(0)
    return EmptyLakeError(
        f"the lake at {root} holds no allocations between {between[0]} and {between[1]}",
        f"it has allocations from {format_ms(known[0])} to {format_ms(known[1])}: widen --since and --until",
    )
