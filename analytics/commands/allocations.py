"""`fallow allocations import KIND` imports allocations; `fallow allocations list` lists and checks them."""

from __future__ import annotations

import argparse
import dataclasses
import json

import polars as pl

from analytics.allocations import summary
from analytics.allocations.check import check
from analytics.allocations.csv_file import CsvFile
from analytics.allocations.kubernetes import Kubernetes
from analytics.allocations.listing import GROUPED_BY, allocations_in, newest_row_ms, requests_in
from analytics.allocations.model import AllocationSource, KnownHosts, Surroundings
from analytics.allocations.publish import merged_with_lake, publish_allocations
from analytics.allocations.slurm import Slurm
from analytics.capacity.jobs import jobs_of
from analytics.commands.table_verb import LakeInputs, LakeVerb, Tables, open_window
from analytics.importers.kinds import add_kinds, open_lake, pseudonyms_of, replaced
from analytics.inventory import load_inventory
from analytics.language.sentences import plain, tr
from analytics.small_tables import read_small
from analytics.tables.allocations import allocation_list, allocation_sums, check_tables, request_list
from analytics.window import READ_MS, load_window_ledger, say_left_out
from fallow import schema
from fallow.clock import Window, format_ms
from fallow.errors import EmptyLakeError, EmptyScopeError, UsageError
from fallow.output import show

SOURCES: tuple[AllocationSource, ...] = (Slurm(), Kubernetes(), CsvFile())
"""Every source, in the order in which `fallow allocations import --help` lists them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True, title="verbs")
    importing = verbs.add_parser("import", help="import allocations into the lake")
    for source, kind in add_kinds(importing, "kinds of allocations", SOURCES):
        kind.add_argument("--check", action="store_true", help="only print what the import would give")
        kind.add_argument(
            "--replace",
            action="store_true",
            help="replace allocations that were imported with another time zone",
        )
        kind.set_defaults(source=source, verb=_import)
    shown = verbs.add_parser(
        "list",
        help="list the allocations and the waiting requests of a window",
        epilog="example: fallow allocations list --lake /srv/lake --since 7d --check",
    )
    _LIST.add_arguments(shown)
    shown.set_defaults(verb=_LIST.run)


def run(args: argparse.Namespace) -> int:
    code: int = args.verb(args)
    return code


def _import(args: argparse.Namespace) -> int:
    """Import allocations; return the exit code. Nothing is written with --check, nor unless every input can be read."""
    settings, lake = open_lake(args)
    hosts = KnownHosts.of(lake)
    say_left_out(lake)
    pseudonyms = pseudonyms_of(args, settings)
    found = args.source.read(args, Surroundings(hosts, settings))
    is_empty = found.rows.is_empty() and found.requests.is_empty() and found.withheld.is_empty()
    if is_empty and args.files and any(file.lines_read for file in found.files):  # a table without lines says so itself
        raise summary.nothing_error(found, args.source.remedies)
    if pseudonyms is not None:
        rows, requests = (
            frame.with_columns(replaced(pl.col("user"), frame["user"], pseudonyms))
            for frame in (found.rows, found.requests)
        )
        found = dataclasses.replace(found, rows=rows, requests=requests)
    if args.check:
        read, published = merged_with_lake(lake, found, replace=args.replace)[0], None
    else:
        read, published = publish_allocations(lake, found, replace=args.replace)
    if args.json:
        show(json.dumps(summary.as_json(read, published, lake.root), indent=2))
    else:
        show(summary.as_text(read, published, lake.root))
    return 0


def _tables(given: LakeInputs, args: argparse.Namespace) -> Tables:
    """Yield the window's allocations and requests; with --check also where allocations and measurements disagree."""
    inputs = open_window(args, "all", given.speaks.zone, given.now_ms)
    lake = inputs.lake.require()
    allocations, asked = read_small(lake, schema.ALLOCATION, schema.ALLOCATION.names), lake.files(schema.REQUEST.name)
    files = lake.files(schema.ALLOCATION.name) if args.check or allocations.is_empty() else []
    if allocations.is_empty() and not files and not asked:
        raise EmptyLakeError(
            f"the lake at {inputs.lake.root} holds no allocations yet",
            "import them with `fallow allocations import`; agents on Kubernetes nodes write theirs themselves",
        )
    requests = read_small(lake, schema.REQUEST, schema.REQUEST.names)
    measured_ms = newest_row_ms(lake) or given.now_ms
    history_ms = READ_MS if args.check else 0
    ledger = load_window_ledger(inputs, history_ms=history_ms) if args.check or inputs.back else None
    window = inputs.window if ledger is None else ledger.window
    say_left_out(lake, ledger)
    indices = {gpu: device.gpu_index for gpu, device in load_inventory(lake).devices.items()}
    listed = allocations_in(allocations, window, measured_ms, indices)
    waiting = requests_in(jobs_of(allocations, requests), window) if asked else []
    if not listed and not waiting:
        raise _empty_window(lake.root, window, allocations, requests)
    if args.user is not None:
        listed = [each for each in listed if each.user == args.user]
        waiting = [each for each in waiting if each.user == args.user]
        if not listed and not waiting:
            raise EmptyScopeError(
                f"user {plain(args.user)} has no allocation in this window",
                "leave out --user to see which users have allocations",
            )
    if args.by is not None:
        yield allocation_sums(listed, args.by)
        return
    yield allocation_list(listed, window, measured_ms)
    yield request_list(waiting)
    if args.check and ledger is not None:
        whole = ledger.whole
        yield from check_tables(check(allocations, ledger.inside.segments, whole.segments, whole.lifetimes, files))


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        choices=tuple(GROUPED_BY),
        help=(
            "a line per account and user, user, partition, ...: GPU-hours beside sreport's, and use by Slurm's"
            " accounting"
        ),
    )
    parser.add_argument(
        "--check", action="store_true", help="compare allocations with measurements (builds the ledger)"
    )


def _check(args: argparse.Namespace) -> None:
    if args.check and args.by is not None:
        raise UsageError("--check compares single allocations", "leave out --by")
    if args.check and args.user is not None:
        raise UsageError("--check compares the allocations of all users", "leave out --user")


_LIST = LakeVerb(
    tr("Allocations"),
    _tables,
    flags=_flags,
    check=_check,
    refused=("pool", "model", "team"),
    why="only the window and --user narrow the list of allocations",
)


def _empty_window(root: str, window: Window, allocations: pl.DataFrame, requests: pl.DataFrame) -> EmptyLakeError:
    """Return the error for a window without allocations and requests; its hint names the times that have some."""
    since_ms, until_ms = window.since_ms, window.until_ms
    between = [
        "its beginning" if since_ms is None else format_ms(since_ms),
        "its end" if until_ms is None else format_ms(until_ms),
    ]
    bounds = pl.concat(
        [
            allocations.select(first="time", last=pl.max_horizontal("time", "end")),
            requests.select(first="time", last=pl.coalesce("withdrawn", "as_of")),
        ]
    )
    if bounds.is_empty():
        return EmptyLakeError(
            f"the allocation files of the lake at {root} hold no rows",
            "import them again with `fallow allocations import`; `fallow lake check` lists the files that are left out",
        )
    known = bounds.select(pl.col("first").min(), pl.col("last").max()).row(0)
    return EmptyLakeError(
        f"the lake at {root} holds no allocations between {between[0]} and {between[1]}",
        f"it has allocations from {format_ms(known[0])} to {format_ms(known[1])}: widen --since and --until",
    )
