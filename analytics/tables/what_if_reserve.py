"""The effect of another reserve: GPUs that can be released, and the shortfall of the pools."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from analytics.capacity.peak_demand import Backtest
from analytics.glossary import term
from analytics.language.sentences import Number, SentenceList, Share, tr, tr_many
from analytics.tables.names import MODEL, POOL, place_name
from analytics.tables.table import Column, Table, column, column_of, fact
from analytics.tables.verdicts import shortfall_words
from analytics.workloads.pool_demand import MARGINS, FleetDemand, WhatIfReserve, what_if_reserve


def reserve_by_pool(found: FleetDemand, margin: float) -> Table:
    """Return one reserve, by pool and model."""
    asked = what_if_reserve(found, margin)
    return Table(
        name="what_if",
        title=tr("What if the reserve were another?"),
        question=tr(
            "How many GPUs could be released with more or less in reserve, and how often would a pool have been short?"
        ),
        headline=reserve_sentence(asked),
        columns=(
            *(column_of(itemgetter(0), each) for each in (POOL, MODEL)),
            column("unused_now", tr("unused now"), "count", lambda row: row[0].free_now + row[0].reclaimable_now),
            column("kept", tr("pool keeps"), "count", lambda row: row[1].kept),
            column("releasable", tr("releasable"), "count", lambda row: row[1].releasable),
            *_shortfall(lambda row: row[1].tested),
        ),
        rows=asked.pools,
        notes=(
            tr(
                "Shortfall: hours of the last three weeks in which demand exceeded what the estimate before kept, while"
                " the pool had more GPUs."
            ),
            tr("Pools whose demand is not known, and those without an unused GPU, are left out."),
        ),
        terms=(term("reserve"),),
    )


def reserves_compared(found: FleetDemand) -> Table:
    """Return all compared reserves, over all pools."""
    return Table(
        name="reserves",
        title=tr("All reserves beside one another"),
        question=tr("What does each reserve leave, and what would it have risked?"),
        headline="",
        columns=(
            column("reserve", tr("reserve"), "share", lambda step: Share(step.margin, 0)),
            column("releasable", tr("releasable"), "count"),
            *_shortfall(lambda step: None if step.worst is None else step.worst[1]),
            column("worst_pool", tr("pool with the largest shortfall"), "words", _worst_pool),
        ),
        rows=tuple(what_if_reserve(found, margin) for margin in MARGINS),
    )


def _worst_pool(step: WhatIfReserve) -> str:
    return "" if step.worst is None or not step.worst[1].shortfall_hours else place_name(step.worst[0].pool)


def _shortfall(tested: Callable[[Any], Backtest | None]) -> tuple[Column, ...]:
    """Return how often demand exceeded what a reserve kept: in words for people, in numbers for programs."""

    def number(key: str) -> Column:
        return fact(key, "count", lambda row: None if (found := tested(row)) is None else getattr(found, key))

    return (
        column("shortfall", tr("shortfall"), "words", lambda row: shortfall_words(tested(row)), audience="people"),
        *map(number, ("shortfall_gpus", "shortfall_hours", "hours")),
    )


def reserve_sentence(asked: WhatIfReserve) -> str:
    """Return the sentence: `With 15 % in reserve 17 GPUs can be released. ...`."""
    if asked.releasable is None:
        return tr("How many GPUs can be released is not known.")
    first = tr_many(
        "With {share} in reserve {number} {GPU|GPUs} can be released.", asked.releasable, share=Share(asked.margin, 0)
    )
    worst = asked.worst
    if worst is None:
        return SentenceList([first, tr("No earlier week could be tested.")], " ")
    pool, tested = worst
    hours = {"short": Number(tested.shortfall_hours), "hours": Number(tested.hours)}
    if not tested.shortfall_hours:
        return SentenceList(
            [first, tr("No release would have left a pool short in any of {hours} tested hours.", **hours)], " "
        )
    second = tr_many(
        "{pool} would have been short in {short} of {hours} tested hours, by at most {number} {GPU|GPUs}.",
        tested.shortfall_gpus,
        pool=place_name(pool.pool),
        **hours,
    )
    return SentenceList([first, second], " ")
