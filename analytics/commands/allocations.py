"""`fallow allocations import KIND ...` brings allocations into the lake, `fallow allocations list` shows them and checks them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.allocations import check, listing, summary, waiting_list
from analytics.allocations.csv_file import CsvFile
from analytics.allocations.kubernetes import Kubernetes
from analytics.allocations.listing import ListedAllocation
from analytics.allocations.model import AllocationSource, KnownHosts, Surroundings
from analytics.allocations.newest_row import newest_row_ms
from analytics.allocations.publish import publish_allocations
from analytics.allocations.slurm import Slurm
from analytics.allocations.waiting_list import ListedRequest
from analytics.frames import read_frame
from analytics.importers.kinds import add_kinds, open_lake, pseudonyms_of, replaced
from analytics.language.plain_text import folded, page_columns
from analytics.plan.jobs import jobs_of
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
        "list", help="show the allocations of a window, and what waits for GPUs", allow_abbrev=False,
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
    """Shows the allocations and requests of the window; with --check also where allocations and measurements do not meet."""
    inputs = open_inputs(args)
    lake = inputs.lake.require()
    files, asked = lake.files(schema.CLAIM.name), lake.files(schema.REQUEST.name)
    if not files and not asked:
        raise EmptyLakeError(
            f"the lake at {inputs.lake.root} holds no allocations yet",
            "bring them in with `fallow allocations import`; agents on Kubernetes nodes write theirs by themselves",
        )
    allocations = read_frame(files, schema.CLAIM, None, inputs.lake.left_out.leave_out)
    requests = read_frame(asked, schema.REQUEST, None, inputs.lake.left_out.leave_out)
    measured_ms = newest_row_ms(inputs.lake) or SystemClock().now_ms()
    ledger = load_window_ledger(inputs) if args.check or inputs.back else None
    window = inputs.window if ledger is None else ledger.window
    say_left_out(inputs.lake, ledger)
    table = listing.allocations_in(allocations, window, measured_ms)
    waiting = waiting_list.requests_in(jobs_of(allocations, requests), window) if asked else []
    if not table and not waiting:
        raise _nothing(inputs.lake.root, window, allocations, requests)
    checked = None
    if args.check and ledger is not None:
        whole = ledger.whole
        checked = check.check(allocations, ledger.inside.stretches, whole.stretches, whole.lifetimes, files)
    _show(args, listed=WindowListing(table, waiting, checked), window=window, measured_ms=measured_ms)
    return 0


@dataclass(frozen=True)
class WindowListing:
    """What a window has, and how that compares with what was measured, where that is asked for."""

    allocations: Sequence[ListedAllocation]
    requests: Sequence[ListedRequest]
    checked: check.Checked | None


def _show(args: argparse.Namespace, listed: WindowListing, window: Window, measured_ms: int) -> None:
    checked = listed.checked
    if args.json:
        content = listing.as_json(listed.allocations) | waiting_list.as_json(listed.requests)
        show(json.dumps(content | ({} if checked is None else {"check": check.as_json(checked)}), indent=2))
    elif args.csv:
        rows = [listing.values(each) for each in listed.allocations]
        rows += [waiting_list.values(each, listing.COLUMNS) for each in listed.requests]
        show(csv_text(listing.COLUMNS, rows), end="")
        if checked is not None:
            say_lines(check.as_text(checked))  # the table's shape is fixed
    else:
        width = page_columns()
        blocks = [listing.as_text(listed.allocations, window, measured_ms, width)] if listed.allocations else []
        blocks += [waiting_list.as_text(listed.requests, width)] if listed.requests else []
        blocks += [] if checked is None else [folded(check.as_text(checked), width)]
        show("\n\n".join(blocks))


def _nothing(root: str, window: Window, allocations: pl.DataFrame, requests: pl.DataFrame) -> EmptyLakeError:
    """What to say of a window in which nothing was allocated and nothing waited."""
    since_ms, until_ms = window.since_ms, window.until_ms
    between = [
        "its beginning" if since_ms is None else format_ms(since_ms),
        "its end" if until_ms is None else format_ms(until_ms),
    ]
    told = pl.concat([
        allocations.select(first="time", last=pl.max_horizontal("time", "end")),
        requests.select(first="time", last=pl.coalesce("withdrawn", "as_of")),
    ])  # fmt: skip
    if told.is_empty():
        return EmptyLakeError(
            f"the claim files of the lake at {root} hold no rows",
            "bring them in again with `fallow allocations import`; `fallow lake check` names files that are left out",
        )
    known = told.select(pl.col("first").min(), pl.col("last").max()).row(0)
    return EmptyLakeError(
        f"the lake at {root} holds no allocations between {between[0]} and {between[1]}",
        f"it has allocations from {format_ms(known[0])} to {format_ms(known[1])}: widen --since and --until",
    )
