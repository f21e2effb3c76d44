"""`fallow plan carbon`: energy and CO2 of used and idle GPU time, and what moving work to other hours would save."""

from __future__ import annotations

import argparse

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.money.energy import open_intensity
from analytics.plan.carbon import SHIFT_HOURS, AskedCarbon
from analytics.tables.plan_carbon import carbon_tables
from fallow.clock import HOUR_MS, parse_duration_ms
from fallow.errors import UsageError

_MOST_HOURS = 48


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--intensity",
        metavar="FILE|NUMBER",
        help="the grid's CO2 in g/kWh: a CSV file with hourly values, or a number (or plan.carbon)",
    )
    parser.add_argument(
        "--shift",
        metavar="TIME",
        default=f"{SHIFT_HOURS}h",
        help=f"how far work may be moved (default: {SHIFT_HOURS}h)",
    )


def _check(args: argparse.Namespace) -> None:
    """Set `args.shift` to a number of hours; raises UsageError unless it is 1 to 48 whole hours."""
    hours, rest = divmod(parse_duration_ms(args.shift), HOUR_MS)
    if rest or not 1 <= hours <= _MOST_HOURS:
        raise UsageError(
            f"--shift {args.shift} is not a number of whole hours up to {_MOST_HOURS}h", "give 12h, for example"
        )
    args.shift = hours


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield energy and CO2 by kind of time and by team, the power of a held card, and what other hours would save."""
    intensity = open_intensity(given.whole.inputs.settings, args.intensity)
    asked = AskedCarbon(intensity, given.speaks.zone, args.shift)
    yield from carbon_tables(given.whole.plan.carbon(given.scope, given.part, asked))


VERB = TableVerb(tr("Energy and CO2"), _tables, flags=_flags, check=_check)
