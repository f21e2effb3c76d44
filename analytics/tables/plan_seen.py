"""Cards for an observed workload, by its measured need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analytics.language.sentences import Amount, Bytes, plain, tr, tr_many
from analytics.plan.fit import SeenFit
from analytics.plan.seen_work import SeenWork, price_rank
from analytics.tables.names import GPU_HOURS, GPUS, MODEL, NAME_MOST
from analytics.tables.plan_fit import CARD, FITS, IN_FLEET, OPTION_FACTS, SOFTWARE, hourly, option_words, software_notes
from analytics.tables.table import Table, column, column_of, fact

SEEN_MOST = 10
"""Workloads listed in detail."""
_FLEET_MOST, _MARKET_MOST = 6, 8
"""Cards listed for a workload, of the fleet and of others."""


def seen_needs(workloads: Sequence[SeenWork], asked: str) -> Table:
    """Return the needs of the workloads, a row each; `asked` is the reader's search."""
    return Table(
        name="seen",
        title=tr("Memory that this workload needed"),
        question=tr("How much memory did this workload need, as measured?"),
        headline=_seen_sentence(workloads, asked),
        columns=WORK_COLUMNS,
        rows=tuple(workloads),
        shown=SEEN_MOST,
        rest=tr("and {number} more", number=len(workloads) - SEEN_MOST),
        notes=(
            tr(
                "Safe size: the peak fills at most 80 % of the card, as for right-sizing. The need lies between the"
                " memory of 98 % of hours and the safe size. For a server that reserves its memory, its weights and its"
                " highest cache use count instead."
            ),
        ),
        wide=True,
    )


def seen_cards(seen: Sequence[SeenFit], currency: str | None) -> Table | None:
    """Return the cards that fit the first workload of known need, and for programs those of all; None without one."""
    found = next((each for each in seen if each.work.need is not None), None)
    if found is None:
        return None
    listed = (*found.fleet[:_FLEET_MOST], *found.market[:_MARKET_MOST])
    others = [option for each in seen if each is not found for option in (*each.fleet, *each.market)]
    return Table(
        name="seen_cards",
        title=tr("Cards that fit {job}", job=job_words(found.work)),
        question=tr("Which cards fit this workload, and how much longer would it take there?"),
        headline=_cards_sentence(found, currency),
        columns=(
            CARD,
            IN_FLEET,
            FITS,
            SOFTWARE,
            column("times_as_long_at_most", tr("times as long, at most"), "number", "times", digits=1),
            *hourly(currency),
            *OPTION_FACTS,
            fact("user", "user", "work.user"),
            fact("job", "name", "work.job"),
            fact("model", "name", "work.model"),
        ),
        rows=(*listed, *found.fleet[_FLEET_MOST:], *found.market[_MARKET_MOST:], *others),
        shown=len(listed),
        notes=(
            *software_notes(each.option for each in listed),
            tr(
                "Times as long: an upper bound by the peak rates of computing and memory. It is for the use that 95 %"
                " of the workload's time did not exceed. Nothing was tested: run the workload there once. At most"
                " {fleet} cards of the fleet and {others} others are listed. --json lists all cards.",
                fleet=_FLEET_MOST,
                others=_MARKET_MOST,
            ),
        ),
        wide=True,
    )


def job_words(work: SeenWork) -> str:
    """Return the job's name, else its user."""
    if work.job is not None:
        return plain(work.job, NAME_MOST)
    return tr("(unknown user)") if work.user is None else plain(work.user, NAME_MOST)


def _seen_sentence(workloads: Sequence[SeenWork], asked: str) -> str:
    known = [need.total for each in workloads if (need := each.need) is not None]
    name = plain(asked, NAME_MOST)
    if not workloads:
        return tr("No workload of {asked} ran for an hour or more on whole cards in this window.", asked=name)
    if not known:
        return tr("{asked} reserved its memory in advance or was not measured, so its need is unknown.", asked=name)
    return tr_many(
        "{{asked}|Of {number} workloads of {asked}, the largest} needed {peak} on a card.",
        len(workloads),
        asked=name,
        peak=Bytes(max(known)),
    )


def _verdict(work: SeenWork) -> str:
    if work.served_bytes is not None:
        return tr("reserved; need by cache use")
    return tr("reserved; need unknown") if work.is_reserved else ""


WORK_COLUMNS = (
    column("job", tr("job"), "name", job_words, "job"),
    replace(MODEL, title=tr("card")),
    GPUS,
    GPU_HOURS,
    column_of("usual_bytes", column("usual_bytes", tr("memory, 98 % of hours"), "number", Bytes)),
    column_of("peak_bytes", column("peak_bytes", tr("peak memory"), "number", Bytes)),
    column_of("need.high", column("sure_bytes", tr("safe card size"), "number", Bytes)),
    column("verdict", tr("verdict"), "words", _verdict, audience="people"),
    fact("user", "user"),
    fact("kind", "words"),
    fact("hosts", "count"),
    fact("days", "count"),
    fact("is_reserved", "words", json_type="boolean"),
    fact("need_bytes", "number", "need.total"),
)
"""Columns of a `SeenWork`."""


def _cards_sentence(found: SeenFit, currency: str | None) -> str:
    if found.work.hosts > 1:
        return tr(
            "The workload ran on {hosts} hosts. Which other cards fit it depends on their network, which is unknown.",
            hosts=found.work.hosts,
        )
    sure = [each for each in (*found.fleet, *found.market) if not each.option.is_tight]
    present = found.work.present
    quick = [
        each.option
        for each in sure
        if each.times == 1.0
        and each.option.hourly is not None
        and present
        and each.option.card.software == present.software
    ]
    if not quick:
        return tr("No card with a known price fits the workload with certainty and is as fast as its present card.")
    cheapest = min(quick, key=price_rank)
    return tr(
        "The cheapest card that fits with certainty and takes no longer is {card}, at {price} an hour.",
        card=option_words(cheapest),
        price=Amount(cheapest.hourly, currency),
    )
