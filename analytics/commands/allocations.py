"""`fallow allocations import KIND ...` brings allocations into the lake, `fallow allocations list` shows them and checks them."""

from __future__ import annotations

import argparse
import dataclasses
import json

import polars as pl

from analytics.allocations import summary
from analytics.allocations.check import check
from analytics.allocations.csv_file import CsvFile
from analytics.allocations.kubernetes import Kubernetes
from analytics.allocations.listing import allocations_in, newest_row_ms, requests_in
from analytics.allocations.model import AllocationSource, KnownHosts, Surroundings
from analytics.allocations.publish import publish_allocations
from analytics.allocations.slurm import Slurm
from analytics.commands.table_verb import LakeInputs, LakeVerb, Tables, open_window
from analytics.frames import read_frame
from analytics.importers.kinds import add_kinds, open_lake, pseudonyms_of, replaced
from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from analytics.plan.jobs import jobs_of
from analytics.tables.allocations import allocation_list, check_tables, request_list
from analytics.window import load_window_ledger, say_left_out
from fallow import schema
from fallow.clock import Window, format_ms
from fallow.errors import EmptyLakeError, EmptyScopeError, UsageError
from fallow.output import show

SOURCES: tuple[AllocationSource, ...] = (Slurm(), Kubernetes(), CsvFile())
"""Every source, in the order in which `fallow allocations import --help` lists them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True, title="verbs")
    importing = verbs.add_parser("import", help="bring allocations into the lake", allow_abbrev=False)
    for source, kind in add_kinds(importing, "kinds of allocations", SOURCES):
        kind.add_argument(
            "--replace",
            action="store_true",
            help="put these in the place of allocations that were imported with another time zone",
        )
        kind.set_defaults(source=source, verb=_import)
    shown = verbs.add_parser(
        "list",
        help="show the allocations of a window, and what waits for GPUs",
        allow_abbrev=False,
        epilog="example: fallow allocations list --lake /srv/lake --since 7d --check",
    )
    _LIST.add_arguments(shown)
    shown.set_defaults(verb=_LIST.run)


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


def _tables(given: LakeInputs, args: argparse.Namespace) -> Tables:
    """The allocations and requests of the window; with --check also where allocations and measurements do not meet."""
    inputs = open_window(args, "all", given.speaks.zone, given.now_ms)
    lake = inputs.lake.require()
    files, asked = lake.files(schema.CLAIM.name), lake.files(schema.REQUEST.name)
    if not files and not asked:
        raise EmptyLakeError(
            f"the lake at {inputs.lake.root} holds no allocations yet",
            "bring them in with `fallow allocations import`; agents on Kubernetes nodes write theirs by themselves",
        )
    allocations = read_frame(files, schema.CLAIM, None, lake.left_out.leave_out)
    requests = read_frame(asked, schema.REQUEST, None, lake.left_out.leave_out)
    measured_ms = newest_row_ms(lake) or given.now_ms
    ledger = load_window_ledger(inputs) if args.check or inputs.back else None
    window = inputs.window if ledger is None else ledger.window
    say_left_out(lake, ledger)
    listed = allocations_in(allocations, window, measured_ms)
    waiting = requests_in(jobs_of(allocations, requests), window) if asked else []
    if not listed and not waiting:
        raise _nothing(lake.root, window, allocations, requests)
    if args.user is not None:
        listed = [each for each in listed if each.user == args.user]
        waiting = [each for each in waiting if each.user == args.user]
        if not listed and not waiting:
            raise EmptyScopeError(
                f"nothing in this window is of user {plain(args.user)}",
                "leave out --user to see whose allocations it has",
            )
    yield allocation_list(listed, window, measured_ms)
    yield request_list(waiting)
    if args.check and ledger is not None:
        whole = ledger.whole
        yield from check_tables(check(allocations, ledger.inside.stretches, whole.stretches, whole.lifetimes, files))


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="compare with what was measured (builds the ledger)")


def _check(args: argparse.Namespace) -> None:
    if args.check and args.user is not None:
        raise UsageError("--check compares everybody's allocations", "leave out --user")


_LIST = LakeVerb(
    tr("Allocations"),
    _tables,
    flags=_flags,
    check=_check,
    refused=("pool", "model", "team"),
    why="allocations are listed by their window and --user",
)


def _nothing(root: str, window: Window, allocations: pl.DataFrame, requests: pl.DataFrame) -> EmptyLakeError:
    """What to say of a window in which nothing was allocated and nothing waited."""
    since_ms, until_ms = window.since_ms, window.until_ms
    between = [
        "its beginning" if since_ms is None else format_ms(since_ms),
        "its end" if until_ms is None else format_ms(until_ms),
    ]
    told = pl.concat(
        [
            allocations.select(first="time", last=pl.max_horizontal("time", "end")),
            requests.select(first="time", last=pl.coalesce("withdrawn", "as_of")),
        ]
    )
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
