"""Which card for work that was seen, by what it needed as measured."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Bytes, GpuHours, Number
from analytics.language.sentences import tr, tr_many
from analytics.plan.card_options import CardOption
from analytics.plan.fit import SeenFit
from analytics.plan.seen_work import SeenWork
from analytics.tables.names import NAME_MOST, card_name
from analytics.tables.plan_fit import option_words, verdict_words
from analytics.tables.table import Cell, Column, Table

SEEN_MOST = 10
"""Works of which more is said than their number."""
_FLEET_MOST, _MARKET_MOST = 6, 8
"""Cards listed of a work, of the fleet and of others."""


def seen_needs(works: Sequence[SeenWork], asked: str) -> Table:
    """What the works needed, a row each; `asked` is what was asked for."""
    return Table(
        name="seen",
        title=tr("What this work needed"),
        question=tr("How much memory did this work take, as measured?"),
        headline=_seen_sentence(works, asked),
        columns=(
            Column("job", tr("job"), "name"),
            Column("card", tr("card"), "name"),
            Column("gpus", tr("GPUs"), "count"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("usual", tr("98 % of hours"), "number"),
            Column("peak", tr("peak"), "number"),
            Column("wanted", tr("card for sure"), "number"),
            Column("verdict", tr("verdict"), "words"),
        ),
        rows=tuple(_seen_row(each) for each in works),
        shown=SEEN_MOST,
        rest=tr("and {number} more", number=Number(len(works) - SEEN_MOST)),
        notes=(tr("For sure: the peak fills at most 80 % of the card, as right-sizing wants it. From 98 % of hours to that is what it may need. Of a server that reserves its memory, weights and the most that it used of its cache count instead."),),
        wide=True,
    )  # fmt: skip


def seen_cards(found: SeenFit, currency: str | None) -> Table:
    """The cards that hold one work."""
    options = (*found.fleet[:_FLEET_MOST], *found.market[:_MARKET_MOST])
    return Table(
        name="seen_cards",
        title=tr("Cards that hold {job}", job=job_words(found.work)),
        question=tr("Which cards would do for this work, and how long would it take there?"),
        headline=_cards_sentence(found, currency),
        columns=(
            Column("card", tr("cards"), "name"),
            Column("fleet", tr("in the fleet"), "count"),
            Column("fits", tr("fits"), "words"),
            Column("times", tr("times as long"), "number"),
            Column("hourly", tr("an hour"), "money"),
        ),
        rows=tuple(_card_row(option, times, currency) for option, times in options),
        notes=(
            tr("Times as long: at most, by peak rates of computing and of memory, for what 95 % of its time stayed within. It was not tried: run it there once. "
               "At most {fleet} cards of the fleet and {others} others are listed; --json has all.", fleet=Number(_FLEET_MOST), others=Number(_MARKET_MOST)),
        ),
        wide=True,
    )  # fmt: skip


def job_words(work: SeenWork) -> str:
    """Its job, else its user."""
    if work.job is not None:
        return plain(work.job, NAME_MOST)
    return tr("(user not known)") if work.holder is None else plain(work.holder, NAME_MOST)


def _seen_sentence(works: Sequence[SeenWork], asked: str) -> str:
    if not works:
        return tr("No work of an hour or more by {asked} was seen on whole cards in this window.", asked=plain(asked, NAME_MOST))  # fmt: skip
    known = [need.total for each in works if (need := each.need) is not None]
    if not known:
        return tr("{asked} was seen, but reserved its memory in advance or was not measured: its need is not known.", asked=plain(asked, NAME_MOST))  # fmt: skip
    return tr_many(
        "{asked} needed {peak} on a card.",
        "Of {number} works of {asked}, the largest needed {peak} on a card.",
        len(works), asked=plain(asked, NAME_MOST), peak=Bytes(max(known)),
    )  # fmt: skip


def _seen_row(work: SeenWork) -> tuple[Cell, ...]:
    need = work.need
    return (
        job_words(work),
        card_name(work.model),
        Number(work.gpus),
        GpuHours(work.gpu_ms),
        None if work.usual_bytes is None else Bytes(work.usual_bytes),
        None if work.peak_bytes is None else Bytes(work.peak_bytes),
        None if need is None else Bytes(need.high),
        _seen_verdict(work),
    )


def _seen_verdict(work: SeenWork) -> str:
    if work.served_bytes is not None:
        return tr("reserved; need by its cache")
    return tr("reserved: need not known") if work.is_reserved else ""


def _cards_sentence(found: SeenFit, currency: str | None) -> str:
    if found.work.hosts > 1:
        return tr("It ran on {hosts} hosts: which other cards would do depends on their network, which is not known.", hosts=Number(found.work.hosts))  # fmt: skip
    sure = [(option, times) for option, times in (*found.fleet, *found.market) if not option.is_tight]
    quick = [option for option, times in sure if times == 1.0 and option.hourly is not None]
    if not quick:
        return tr("No card with a known price holds it for sure and is as fast for it as its own.")
    cheapest = min(quick, key=lambda option: option.hourly or 0.0)
    return tr("The cheapest that holds it for sure and takes no longer is {card}, for {price} an hour.", card=option_words(cheapest), price=Amount(cheapest.hourly, currency))  # fmt: skip


def _card_row(option: CardOption, times: float | None, currency: str | None) -> tuple[Cell, ...]:
    return (
        option_words(option),
        Number(option.there),
        verdict_words(option),
        None if times is None else Number(times, 1),
        None if option.hourly is None else Amount(option.hourly, currency),
    )
