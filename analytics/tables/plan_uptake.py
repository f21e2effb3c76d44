"""What became of new cards: how long until they were used, beside those that came before, and what the wait cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from analytics.language.quantities import Amount, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.plan.allocation import Arrival, FleetAllocation
from analytics.tables.names import HOST, model_if_several, pool_column
from analytics.tables.table import Table, column, fact


def uptake_table(found: FleetAllocation) -> Table | None:
    """A row for the cards that came to a host on a day; None for people."""
    if found.arrivals is None:
        return None
    return Table(
        name="uptake",
        title=tr("What new cards were used for"),
        question=tr("How long did new cards stand before their first use, and what did each idle day cost?"),
        headline=_headline(found.arrivals, found.currency),
        columns=(
            column("day", tr("first seen"), "number", json_type="string"),
            pool_column(),
            model_if_several(found.arrivals),
            HOST,
            column("gpu_count", tr("cards"), "count", lambda each: len(each.gpus)),
            column("unused_gpus", tr("unused"), "count", "unused"),
            *(
                column(key, title, "number", partial(_rounded, key, 1))
                for key, title in (
                    ("first_use_days", tr("first use")),
                    ("earlier_days", tr("before")),
                    ("ramp_days", tr("ramp")),
                )
            ),
            column("active_share", tr("active"), "share", lambda each: Share(each.active_share)),
            column("fleet_share", tr("the others"), "share", lambda each: Share(each.fleet_share)),
            column("day_cost", tr("a day"), "money", partial(_rounded, "day_cost", 0)),
            column("idle_cost", tr("cost"), "money", partial(_rounded, "idle_cost", 0)),
            fact("currency", "words", lambda _: found.currency),
            fact("idle_days", "number"),
            fact("earlier_gpus", "count", "earlier"),
            fact("gpus", "words", json_type="array"),
        ),
        rows=found.arrivals,
        notes=(
            tr(
                "New is what was first seen more than a day after the first row of the lake. First use is days, the median of the cards that were used; before is that of all cards that came earlier; "
                "ramp is days to half of the activity of the cards that were there from the start, whose share of active time is under the others. The cost ({currency}) is the price of a GPU-hour times 24 for each day from a card's first moment to its first use, or to the last moment at which it was seen.",
                currency=found.currency,
            ),
        ),
        wide=True,
    )


def _rounded(name: str, digits: int, row: Arrival) -> Number:
    return Number(getattr(row, name), digits)


def _headline(found: Sequence[Arrival], currency: str) -> str:
    if not found:
        return tr("No card is known to have come since the first day of the lake.")
    cards = tr_many("{number} card came", "{number} cards came", sum(len(each.gpus) for each in found))
    unused = sum(each.unused for each in found)
    days = Number(sum(each.idle_days for each in found), 1)
    costs = [each.idle_cost for each in found if each.idle_cost is not None]
    if len(costs) < len(found):
        return tr(
            "{cards}; {unused} never used so far, and {days} card-days until first use.",
            cards=cards,
            unused=unused,
            days=days,
        )
    return tr(
        "{cards}; {unused} never used so far, and {days} card-days until first use cost {cost}.",
        cards=cards,
        unused=unused,
        days=days,
        cost=Amount(sum(costs), currency),
    )
