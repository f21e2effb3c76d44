"""What became of new cards: how long until they were used, beside those that came before, and what the wait cost."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.quantities import Amount, Date, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.plan.allocation import FleetAllocation
from analytics.plan.uptake import Arrival
from analytics.tables.names import card_name, has_several_models, place_name
from analytics.tables.table import Cell, Column, Table


def uptake_table(found: FleetAllocation) -> Table | None:
    """A row for the cards that came to a host on a day; None for people."""
    if found.arrivals is None:
        return None
    with_model = has_several_models([(each.pool, each.model) for each in found.arrivals])
    return Table(
        name="uptake",
        title=tr("What new cards were used for"),
        question=tr("How long did new cards stand before their first use, and what did each idle day cost?"),
        headline=_headline(found.arrivals, found.currency),
        columns=(
            Column("day", tr("first seen"), "number"),
            Column("pool", tr("pool"), "pool"),
            *((Column("model", tr("model"), "name"),) if with_model else ()),
            Column("host", tr("host"), "host"),
            Column("cards", tr("cards"), "count"),
            Column("unused", tr("unused"), "count"),
            Column("first_use", tr("first use"), "number"),
            Column("earlier", tr("before"), "number"),
            Column("ramp", tr("ramp"), "number"),
            Column("active", tr("active"), "share"),
            Column("fleet", tr("the others"), "share"),
            Column("day_cost", tr("a day"), "money"),
            Column("idle_cost", tr("cost"), "money"),
        ),
        rows=tuple(_row(each, with_model=with_model) for each in found.arrivals),
        notes=(
            tr(
                "New is what was first seen more than a day after the first row of the lake. First use is days, the median of the cards that were used; before is that of all cards that came earlier; "
                "ramp is days to half of the activity of the cards that were there from the start, whose share of active time is under the others. The cost ({currency}) is the price of a GPU-hour times 24 for each day from a card's first moment to its first use, or to the last moment at which it was seen.",
                currency=found.currency,
            ),
        ),
        wide=True,
    )  # fmt: skip


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
            unused=Number(unused),
            days=days,
        )
    return tr(
        "{cards}; {unused} never used so far, and {days} card-days until first use cost {cost}.",
        cards=cards, unused=Number(unused), days=days, cost=Amount(sum(costs), currency),
    )  # fmt: skip


def _row(each: Arrival, *, with_model: bool) -> tuple[Cell, ...]:
    return (
        Date(each.day),
        place_name(each.pool),
        *((card_name(each.model),) if with_model else ()),
        each.host,
        Number(len(each.gpus)),
        Number(each.unused),
        Number(each.first_use_days, 1),
        Number(each.earlier_days, 1),
        Number(each.ramp_days, 1),
        Share(each.active_share),
        Share(each.fleet_share),
        Number(each.day_cost, 0),
        Number(each.idle_cost, 0),
    )
