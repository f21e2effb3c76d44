"""`fallow plan purchase`: what to buy, reserve or rent for the observed demand, and internal prices of a GPU-hour."""

from __future__ import annotations

import argparse

from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.languages import time_zone
from analytics.language.sentences import tr
from analytics.plan.purchase import internal_prices_of, of_scope
from analytics.plan.replay.comparisons import shifted_work
from analytics.plan.replay.policy import policy_from
from analytics.tables.plan_internal_prices import (
    internal_price_table,
    price_factors,
    shifted_work_figures,
    shifted_work_table,
)
from analytics.tables.plan_purchase import mix_parts, need_figures, purchase_mix, purchase_offers
from fallow.clock import from_ms
from fallow.errors import UsageError


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spot-share",
        metavar="SHARE",
        type=float,
        help="share of the demand that may be interrupted, from 0 to 1 (default: the work of best-effort owners)",
    )
    parser.add_argument(
        "--off-peak",
        metavar="HH:MM-HH:MM",
        help="also replay the window with work that can wait starting in these cheap hours only",
    )


def _check(args: argparse.Namespace) -> None:
    if args.spot_share is not None and not 0 <= args.spot_share <= 1:
        raise UsageError(f"--spot-share {args.spot_share} is not a share", "give a number from 0 to 1, such as 0.3")


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield the cheapest mix, the offers, the internal prices, and with --off-peak the work that would have moved."""
    whole, currency = given.whole, given.whole.money.currency
    prices = whole.plan.purchases_for(whole.decisions.fleet, args.spot_share)
    found = of_scope(prices, given.scope)
    zone = whole.inputs.settings.text("report.timezone")
    internal = internal_prices_of(found, time_zone(zone))
    yield purchase_mix(found, currency, given.part.summary.totals)
    yield mix_parts(found, currency)
    yield purchase_offers(found, currency, from_ms(given.now_ms).date())
    yield internal_price_table(internal, currency)
    if args.off_peak is not None:
        base = whole.plan.replay_base(given.scope)
        off_peak = policy_from({"off_peak": args.off_peak}, zone, "the command").off_peak
        assert off_peak is not None  # noqa: S101  # the flag sets it
        shifted = shifted_work(base, off_peak, internal)
        yield shifted_work_table(base, shifted, currency)
        yield shifted_work_figures(shifted)
    yield need_figures(found, currency)
    yield price_factors(internal)


VERB = TableVerb(
    tr("Rent, reserve or buy?"),
    _tables,
    flags=_flags,
    check=_check,
    refused=PEOPLE,
    why="GPUs are bought and rented for pools",
)
