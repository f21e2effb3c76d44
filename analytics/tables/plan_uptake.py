"""New cards: days until first use, compared with earlier cards, and the cost of the idle days."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.sentences import Amount, Number, Share, tr, tr_many
from analytics.plan.allocation import Arrival, FleetAllocation
from analytics.tables.names import HOST, POOL, model_if_several
from analytics.tables.table import Table, column, fact


def uptake_table(found: FleetAllocation) -> Table | None:
    """Return a row for the cards that came to a host on a day; None for people."""
    if found.arrivals is None:
        return None
    return Table(
        name="uptake",
        title=tr("Use of new cards"),
        question=tr("How long were new cards idle before their first use, and what did each idle day cost?"),
        headline=_headline(found.arrivals, found.currency),
        columns=(
            column("day", tr("first seen"), "number", json_type="string"),
            POOL,
            model_if_several(found.arrivals),
            HOST,
            column("gpu_count", tr("cards"), "count", lambda each: len(each.gpus)),
            column("unused_gpus", tr("unused"), "count", "unused"),
            column("first_use_days", tr("days to first use"), "number", lambda each: Number(each.first_use_days, 1)),
            column("earlier_days", tr("days, earlier cards"), "number", lambda each: Number(each.earlier_days, 1)),
            column("ramp_days", tr("days to ramp up"), "number", lambda each: Number(each.ramp_days, 1)),
            column("active_share", tr("active"), "share", lambda each: Share(each.active_share)),
            column("fleet_share", tr("active, other cards"), "share", lambda each: Share(each.fleet_share)),
            column(
                "day_cost",
                tr("{part}, {currency}", part=tr("cost per day"), currency=found.currency),
                "money",
                lambda each: Number(each.day_cost),
            ),
            column(
                "idle_cost",
                tr("cost, {currency}", currency=found.currency),
                "money",
                lambda each: Number(each.idle_cost),
            ),
            fact("currency", "words", lambda _: found.currency),
            fact("idle_days", "number"),
            fact("earlier_gpus", "count", "earlier"),
            fact("gpus", "words", json_type="array"),
        ),
        rows=found.arrivals,
        notes=(
            tr(
                "New: first observed more than a day after the first row of the lake. Days to first use: the median of"
                " the cards that were used; earlier cards: of all cards that came before. Days to ramp up: until half"
                " of the activity of the other cards, which were there from the start. Cost ({currency}): the price of"
                " a GPU-hour times 24 for each idle day. Idle days run from a card's first observation to its first"
                " use, or to its last observation.",
                currency=found.currency,
            ),
        ),
        wide=True,
    )


def _headline(found: Sequence[Arrival], currency: str) -> str:
    if not found:
        return tr("No card was added after the first day of the lake.")
    cards = tr_many("{number} {card was|cards were} added", sum(len(each.gpus) for each in found))
    unused = sum(each.unused for each in found)
    days = Number(sum(each.idle_days for each in found), 1)
    costs = [each.idle_cost for each in found if each.idle_cost is not None]
    return tr(
        (
            "{cards}; {unused} of them are not used yet. Before their first use they were idle for {days} card-days."
            if len(costs) < len(found)
            else (
                "{cards}; {unused} of them are not used yet. Before their first use they were idle for {days}"
                " card-days, which cost {cost}."
            )
        ),
        cards=cards,
        unused=unused,
        days=days,
        cost=Amount(sum(costs), currency),
    )
