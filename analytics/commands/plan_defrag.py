"""`fallow plan defrag`: which jobs could start, what would make room, and how fragmented the free GPUs are."""

from __future__ import annotations

import argparse

from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.plan.room_for_jobs import of_pools
from analytics.tables.plan_defrag import fragmentation_table, moves_table, room_checks, room_for_jobs
from fallow.errors import UsageError


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="N", type=int, help="GPUs of the job (default: 1, 2, 4 ... 64)")


def _check(args: argparse.Namespace) -> None:
    if args.gpus is not None and args.gpus < 1:
        raise UsageError(f"--gpus {args.gpus} is not a number of GPUs", "give 1 or more")


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    plan = given.whole.plan
    rooms = of_pools(plan.rooms if args.gpus is None else plan.rooms_for((args.gpus,)), given.scope)
    yield room_for_jobs(rooms)
    yield moves_table(rooms, given.whole.money.costs.currency)
    yield fragmentation_table(rooms)
    yield room_checks(rooms)


VERB = TableVerb(
    tr("Which jobs could start, and what would make room"),
    _tables,
    _flags,
    _check,
    refused=PEOPLE,
    why="all users of a pool share its room",
)
