"""Which card for work that was seen, by what it needed as measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Bytes
from analytics.language.sentences import tr, tr_many
from analytics.plan.fit import SeenFit
from analytics.plan.seen_work import SeenWork
from analytics.tables.names import NAME_MOST, card_name, decimals
from analytics.tables.plan_fit import CARD, FITS, IN_FLEET, OPTION_FACTS, hourly, option_words
from analytics.tables.table import Column, Table, column, fact

SEEN_MOST = 10
"""Works of which more is said than their number."""
_FLEET_MOST, _MARKET_MOST = 6, 8
"""Cards listed of a work, of the fleet and of others."""


def work_columns(of: Callable[[Any], SeenWork]) -> tuple[Column, ...]:
    """Columns over the work that `of` returns for a row."""
    return (
        column("job", tr("job"), "name", lambda row: job_words(of(row)), lambda row: of(row).job),
        column("model", tr("card"), "name", lambda row: card_name(of(row).model), lambda row: of(row).model),
        column("gpus", tr("GPUs"), "count", lambda row: of(row).gpus),
        column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda row: of(row).gpu_ms),
        column("usual_bytes", tr("98 % of hours"), "number", lambda row: _size(of(row).usual_bytes)),
        column("peak_bytes", tr("peak"), "number", lambda row: _size(of(row).peak_bytes)),
        column(
            "sure_bytes",
            tr("card for sure"),
            "number",
            lambda row: _size(need.high if (need := of(row).need) else None),
        ),
        column("verdict", tr("verdict"), "words", lambda row: _verdict(of(row)), audience="people"),
        fact("user", "holder", lambda row: of(row).holder),
        fact("kind", "words", lambda row: of(row).kind),
        fact("hosts", "count", lambda row: of(row).hosts),
        fact("days", "count", lambda row: of(row).days),
        fact("is_reserved", "words", lambda row: of(row).is_reserved, "boolean"),
        fact("need_bytes", "number", lambda row: need.total if (need := of(row).need) else None),
    )


def _size(size: float | None) -> Bytes | None:
    return None if size is None else Bytes(size)


def seen_needs(works: Sequence[SeenWork], asked: str) -> Table:
    """What the works needed, a row each; `asked` is what was asked for."""
    return Table(
        name="seen",
        title=tr("What this work needed"),
        question=tr("How much memory did this work take, as measured?"),
        headline=_seen_sentence(works, asked),
        columns=work_columns(lambda work: work),
        rows=tuple(works),
        shown=SEEN_MOST,
        rest=tr("and {number} more", number=len(works) - SEEN_MOST),
        notes=(
            tr(
                "For sure: the peak fills at most 80 % of the card, as right-sizing wants it. From 98 % of hours to that is what it may need. Of a server that reserves its memory, weights and the most that it used of its cache count instead."
            ),
        ),
        wide=True,
    )


def seen_cards(seen: Sequence[SeenFit], currency: str | None) -> Table | None:
    """The cards that hold the first work whose need is known, and for programs those of all; None where no need is known."""
    found = next((each for each in seen if each.work.need is not None), None)
    if found is None:
        return None
    listed = (*found.fleet[:_FLEET_MOST], *found.market[:_MARKET_MOST])
    others = [option for each in seen if each is not found for option in (*each.fleet, *each.market)]
    return Table(
        name="seen_cards",
        title=tr("Cards that hold {job}", job=job_words(found.work)),
        question=tr("Which cards would do for this work, and how long would it take there?"),
        headline=_cards_sentence(found, currency),
        columns=(
            CARD,
            IN_FLEET,
            FITS,
            column("times_as_long_at_most", tr("times as long"), "number", lambda each: decimals(each.times, 1)),
            hourly(currency),
            *OPTION_FACTS,
            fact("user", "holder", "work.holder"),
            fact("job", "name", "work.job"),
            fact("model", "name", "work.model"),
        ),
        rows=(*listed, *found.fleet[_FLEET_MOST:], *found.market[_MARKET_MOST:], *others),
        shown=len(listed),
        notes=(
            tr(
                "Times as long: at most, by peak rates of computing and of memory, for what 95 % of its time stayed within. It was not tried: run it there once. "
                "At most {fleet} cards of the fleet and {others} others are listed; --json has all.",
                fleet=_FLEET_MOST,
                others=_MARKET_MOST,
            ),
        ),
        wide=True,
    )


def job_words(work: SeenWork) -> str:
    """Its job, else its user."""
    if work.job is not None:
        return plain(work.job, NAME_MOST)
    return tr("(user not known)") if work.holder is None else plain(work.holder, NAME_MOST)


def _seen_sentence(works: Sequence[SeenWork], asked: str) -> str:
    if not works:
        return tr(
            "No work of an hour or more by {asked} was seen on whole cards in this window.",
            asked=plain(asked, NAME_MOST),
        )
    known = [need.total for each in works if (need := each.need) is not None]
    if not known:
        return tr(
            "{asked} was seen, but reserved its memory in advance or was not measured: its need is not known.",
            asked=plain(asked, NAME_MOST),
        )
    return tr_many(
        "{asked} needed {peak} on a card.",
        "Of {number} works of {asked}, the largest needed {peak} on a card.",
        len(works),
        asked=plain(asked, NAME_MOST),
        peak=Bytes(max(known)),
    )


def _verdict(work: SeenWork) -> str:
    if work.served_bytes is not None:
        return tr("reserved; need by its cache")
    return tr("reserved: need not known") if work.is_reserved else ""


def _cards_sentence(found: SeenFit, currency: str | None) -> str:
    if found.work.hosts > 1:
        return tr(
            "It ran on {hosts} hosts: which other cards would do depends on their network, which is not known.",
            hosts=found.work.hosts,
        )
    sure = [each for each in (*found.fleet, *found.market) if not each.option.is_tight]
    quick = [each.option for each in sure if each.times == 1.0 and each.option.hourly is not None]
    if not quick:
        return tr("No card with a known price holds it for sure and is as fast for it as its own.")
    cheapest = min(quick, key=lambda option: option.hourly or 0.0)
    return tr(
        "The cheapest that holds it for sure and takes no longer is {card}, for {price} an hour.",
        card=option_words(cheapest),
        price=Amount(cheapest.hourly, currency),
    )
