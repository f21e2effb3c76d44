"""`fallow plan forecast`: the expected demand, the day on which each pool is full, and the latest day to order."""

from __future__ import annotations

import argparse

from analytics.capacity.forecast import HORIZON_DAYS, lead_days
from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.tables.plan_forecast import forecast_days, order_dates
from analytics.workloads.pool_demand import most_urgent_first
from fallow.clock import DAY_MS, parse_duration_ms
from fallow.errors import UsageError

_HORIZON_MAX_DAYS = 366


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--horizon",
        metavar="TIME",
        default=f"{HORIZON_DAYS}d",
        help="how far ahead to forecast, such as 30d (default: 13w)",
    )
    parser.add_argument(
        "--lead-time",
        metavar="[POOL=]TIME",
        action="append",
        default=[],
        help="time from order to use, such as 12w, or a100=26w for a pool; repeatable (or plan.lead_time)",
    )


def _check(args: argparse.Namespace) -> None:
    if _days(args.horizon) > _HORIZON_MAX_DAYS:
        raise UsageError(f"--horizon {args.horizon} is more than a year ahead", "give 52w or less")
    _leads(args)


def _leads(args: argparse.Namespace) -> dict[str, int]:
    """Return the days from order to use by pool; the empty name stands for all other pools."""
    named = (each.rpartition("=") for each in args.lead_time)
    return {pool: _days(time) for pool, _, time in named}


def _days(text: str) -> int:
    return -(-parse_duration_ms(text) // DAY_MS)


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    fleet, leads = given.whole.decisions.fleet, _leads(args)
    pools = {pool.pool for pool in fleet.pools}
    if unknown := sorted(leads.keys() - pools - {""}):
        raise UsageError(
            f"--lead-time names the pool {unknown[0]}, which has no GPU", f"the pools are {', '.join(sorted(pools))}"
        )
    everywhere = leads.get("", lead_days(given.whole.inputs.settings))
    asked = [pool.with_outlook(_days(args.horizon), leads.get(pool.pool, everywhere)) for pool in fleet.pools]
    found = most_urgent_first(asked, given.scope)
    yield order_dates(found)
    yield forecast_days(found)


VERB = TableVerb(
    tr("When new GPUs have to be ordered"),
    _tables,
    _flags,
    _check,
    refused=PEOPLE,
    why="a forecast is for pools, not for teams or users",
)
