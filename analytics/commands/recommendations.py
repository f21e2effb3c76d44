"""`fallow recommendations`: what to do, what it saves, who acts, and how it adds up to the waste."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.decide.recommendations import Recommendations
from analytics.decide.review import WaitingRule, waiting_rules
from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from analytics.ledger.summary import Summary
from analytics.names import JOINER
from analytics.tables.facts import whose_prices
from analytics.tables.give_back import give_back
from analytics.tables.ledger_columns import WINDOW_COLUMNS
from analytics.tables.recommendations import (
    DECISIONS,
    RECLAIMABLE,
    SAVINGS,
    decision_rows,
    recommendations,
    to_look_at,
    waste,
)
from analytics.tables.table import Column, column_of, fact, record_column
from analytics.tables.wording import WAITING, waiting
from fallow.errors import FallowError


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="NAME", help="only what this user, or `operators`, has to act on")


def _found(given: VerbInputs, owner: str | None) -> Recommendations:
    """The decisions of the scope, or those that the owner acts on, alone or with others; raises FallowError for none."""
    found = given.report.recommendations
    if owner is None:
        return found
    own = tuple(each for each in found.listed if owner in each.owner.split(JOINER))
    if not own:
        owners = sorted({name for each in found.listed for name in each.owner.split(JOINER)})
        known = ", ".join(map(plain, owners)) or "nobody"
        raise FallowError(f"{plain(owner)} has nothing to act on in this window", f"who has: {known}")
    return replace(found, listed=own)


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """What goes back and how the waste adds up are about all owners."""
    found, is_all = _found(given, args.owner), args.owner is None
    yield decision_rows(found)
    if found.reclaimable is not None and is_all:
        yield give_back(found.reclaimable)
    yield recommendations(found, None)
    yield to_look_at(found)
    if is_all:
        yield waste(found)


def _about(given: VerbInputs) -> Iterator[str]:
    prices = whose_prices(given.report.money.basis, given.report.money.currency)
    yield tr("{label}: {value}", label=tr("prices"), value=prices)
    yield waiting(waiting_rules(given.whole.review.context))


@dataclass(frozen=True)
class _Content:
    """What JSON has beside the recommendations."""

    summary: Summary
    prices: tuple[str, ...]
    found: Recommendations
    waiting: tuple[WaitingRule, ...]


COLUMNS = (
    record_column("window", WINDOW_COLUMNS, "summary"),
    fact("prices", "words", json_type="array", about="Where the prices are from: site, catalog."),
    *(column_of("found", each) for each in (DECISIONS, *SAVINGS, RECLAIMABLE)),
    column_of("waiting", WAITING),
)


def _content(given: VerbInputs, args: argparse.Namespace) -> tuple[tuple[Column, ...], _Content]:
    prices = sorted({each.price.origin for each in given.report.money.basis if each.price is not None})
    waits = waiting_rules(given.whole.review.context)
    return COLUMNS, _Content(given.part.summary, tuple(prices), _found(given, args.owner), waits)


VERB = TableVerb(tr("What to do"), _tables, about=_about, content=_content, flags=_flags, since="all")
