"""`fallow recommendations`: actions on GPUs with value, owner and deadline, and how they add up to the waste."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.decide.recommendations import Recommendations
from analytics.decide.review import WaitingRule, waiting_rules
from analytics.language.sentences import plain, tr
from analytics.ledger.summary import Summary
from analytics.names import JOINER
from analytics.tables.facts import whose_prices
from analytics.tables.ledger_columns import WINDOW_COLUMNS
from analytics.tables.recommendations import DECISIONS, VALUES, decision_rows, recommendations, to_look_at, waste
from analytics.tables.table import Column, column_of, fact, record_column
from analytics.tables.verdicts import POOL_DEMAND, pool_verdicts
from analytics.tables.wording import WAITING, waiting
from fallow.errors import FallowError


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="NAME", help="only recommendations for this user, or for `operators`")


def _found(given: VerbInputs, owner: str | None) -> Recommendations:
    """Return the recommendations of the scope, or the owner's; raises FallowError if the owner has none."""
    found = given.report.recommendations
    if owner is None:
        return found
    own = tuple(each for each in found.listed if owner in each.owner.split(JOINER))
    if not own:
        owners = sorted({name for each in found.listed for name in each.owner.split(JOINER)})
        known = f"the owners are {', '.join(map(plain, owners))}" if owners else "no owner has recommendations"
        raise FallowError(f"{plain(owner)} has no recommendations in this window", known)
    return replace(found, listed=own)


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield the recommendations; without --owner also the verdicts of pools and the sum of the waste."""
    found, is_all = _found(given, args.owner), args.owner is None
    yield decision_rows(found)
    yield recommendations(found, None)
    if found.fleet is not None and is_all:
        yield pool_verdicts(found.fleet)
    yield to_look_at(found)
    if is_all:
        yield waste(found)


def _about(given: VerbInputs) -> Iterator[str]:
    prices = whose_prices(given.report.money.basis, given.report.money.currency)
    yield tr("{label}: {value}", label=tr("prices"), value=prices)
    yield waiting(waiting_rules(given.whole.context))


@dataclass(frozen=True)
class _Content:
    summary: Summary
    prices: tuple[str, ...]
    found: Recommendations
    waiting: tuple[WaitingRule, ...]


COLUMNS = (
    record_column("window", WINDOW_COLUMNS, "summary"),
    fact("prices", "words", json_type="array", about="Origins of the prices: site, catalog."),
    *(column_of("found", each) for each in (DECISIONS, *VALUES, POOL_DEMAND)),
    column_of("waiting", WAITING),
)


def _content(given: VerbInputs, args: argparse.Namespace) -> tuple[tuple[Column, ...], _Content]:
    prices = sorted({each.price.origin for each in given.report.money.basis if each.price is not None})
    waits = waiting_rules(given.whole.context)
    return COLUMNS, _Content(given.part.summary, tuple(prices), _found(given, args.owner), waits)


VERB = TableVerb(tr("What to do"), _tables, about=_about, content=_content, flags=_flags, since="all")
