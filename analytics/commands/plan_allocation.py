"""`fallow plan allocation`: who has GPUs, who starves and who hoards, which GPUs end soon, and use of new cards."""

from __future__ import annotations

import argparse

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.plan.endings import HORIZON_DAYS, Endings
from analytics.plan.reallocation import Reallocation
from analytics.tables.plan_allocation import allocation_facts, owner_table, starving_table
from analytics.tables.plan_endings import endings_check, endings_table
from analytics.tables.plan_reallocation import balance_table, left_table, proposal_facts, proposal_table, unserved_table
from analytics.tables.plan_uptake import uptake_table
from fallow.errors import ConfigError, UsageError
from fallow.output import say

_DAYS_MAX = 366


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", metavar="N", type=int, default=HORIZON_DAYS, help=f"how far ahead to look (default: {HORIZON_DAYS})"
    )
    parser.add_argument(
        "--requests",
        metavar="FILE",
        help="CSV file of GPU requests by team, to be served from GPUs that become free (or plan.requests)",
    )


def _check(args: argparse.Namespace) -> None:
    if not 1 <= args.days <= _DAYS_MAX:
        raise UsageError(f"--days {args.days} is not between 1 and {_DAYS_MAX}", f"leave it out for {HORIZON_DAYS}")
    if args.user and args.requests:
        raise UsageError("requests are by team, not by user", "leave out --user")
    if args.requests == "":
        raise UsageError("--requests names no file", "name a file, or leave out the flag")


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    calendar = given.whole.plan.endings_for(args.days)
    found = given.whole.plan.allocation(given.scope, given.part, given.report.ledger.seen, calendar)
    proposal = _proposal(given, args, calendar)
    yield from (owner_table(found), starving_table(found), endings_table(found))
    yield from (table(proposal) for table in (proposal_table, unserved_table, balance_table, left_table))
    yield from (uptake_table(found), allocation_facts(found), endings_check(found), proposal_facts(proposal))


def _proposal(given: VerbInputs, args: argparse.Namespace, calendar: Endings) -> Reallocation | None:
    """Return which request gets which GPUs; None without requests, or if the file that the settings name is wrong."""
    path = args.requests or given.whole.inputs.settings.text("plan.requests")
    try:
        return given.whole.reallocation(given.scope, path, calendar)
    except ConfigError as error:
        if args.requests:
            raise
        say(str(error))
        return None


VERB = TableVerb(tr("Who has the GPUs"), _tables, _flags, _check)
