"""`fallow plan forecast`: the demand to come, the day on which each pool is full, and until when to order."""

from __future__ import annotations

import argparse

from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.plan.forecast import HISTORY_MS, HORIZON_DAYS, lead_days, of_scope, outlooks
from analytics.tables.plan_forecast import forecast_days, order_dates
from fallow.clock import DAY_MS, parse_duration_ms
from fallow.errors import UsageError

_HORIZON_MAX_DAYS = 366


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--horizon", metavar="TIME", default=f"{HORIZON_DAYS}d", help="how far ahead, such as 13w (the default) or 30d"
    )
    parser.add_argument(
        "--lead-time",
        metavar="[POOL=]TIME",
        action="append",
        default=[],
        help="from an order to GPUs in use, such as 12w, or a100=26w for one pool; may be repeated (or plan.lead_time)",
    )


def _check(args: argparse.Namespace) -> None:
    if _days(args.horizon) > _HORIZON_MAX_DAYS:
        raise UsageError(f"--horizon {args.horizon} is more than a year ahead", "give 52w or less")
    _leads(args)


def _leads(args: argparse.Namespace) -> dict[str, int]:
    """Return the days from an order to use by pool; of all other pools under an empty name."""
    named = (each.rpartition("=") for each in args.lead_time)
    return {pool: _days(time) for pool, _, time in named}


def _days(text: str) -> int:
    return -(-parse_duration_ms(text) // DAY_MS)


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    series, leads = given.whole.plan.demand, _leads(args)
    pools = {each.pool for each in series}
    if unknown := sorted(leads.keys() - pools - {""}):
        raise UsageError(
            f"--lead-time names the pool {unknown[0]}, which has no GPU here", f"there are {', '.join(sorted(pools))}"
        )
    everywhere = leads.get("", lead_days(given.whole.inputs.settings))
    found = of_scope(outlooks(series, _days(args.horizon), everywhere, leads), given.scope)
    yield order_dates(found)
    yield forecast_days(found)


VERB = TableVerb(
    tr("When new GPUs have to be ordered"),
    _tables,
    _flags,
    _check,
    refused=PEOPLE,
    why="a forecast is of a pool's GPUs, not of a team's or a user's",
    history_ms=HISTORY_MS,
)
