"""GPU time of teams and users, its use, and their rank by efficiency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from analytics.glossary import state_label, term
from analytics.language.sentences import GpuHours, Number, Sentence, Share, from_cents, plain, tr
from analytics.ledger.summary import ratio
from analytics.money.accounts import Account, EfficiencyRank
from analytics.money.window_money import Money
from analytics.report.figures import UserFigures
from analytics.report.parts import People
from analytics.states import ALLOCATED_USED_FIRST, IDLE_ALLOCATED
from analytics.tables.basis import state_hours
from analytics.tables.card_use import CARD_USE_COLUMNS, card_use_note, card_use_terms, measured_columns
from analytics.tables.names import NAME_MOST, card_name, more_with_hours
from analytics.tables.point_samples import unconfirmed_note
from analytics.tables.table import Column, Kind, StateBar, Table, column, fact

_LISTED = 12
RANK = tr(
    "Rank 1 is the most efficient. The ranking compares users or teams with at least one GPU-hour on the same model;"
    " each is ranked on the model it used most."
)
_UNCONFIRMED = tr("An unconfirmed rank orders measured efficiencies of which at least one is known only as a range.")


def efficiency_bounds(
    key: str, of: Callable[[Any], Account | EfficiencyRank | None] = lambda row: row
) -> tuple[Column, Column]:
    """Return for programs the bounds of the efficiency of what `of` gives of a row; null if next to nothing is open."""

    def end(number: int) -> Callable[[Any], float | None]:
        def read(row: Any) -> float | None:
            bound = None if (found := of(row)) is None else found.efficiency_bound
            return None if bound is None else bound[number]

        return read

    return (
        fact(f"{key}_low", "share", end(0), about="Its least; null where samples leave next to nothing open."),
        fact(f"{key}_high", "share", end(1), about="Its most, likewise."),
    )


RANK_FACTS = (
    fact("rank_efficiency_of", "count", "efficiency_rank.compared", about="How many were compared on that model."),
    fact("rank_efficiency_model", "words", "efficiency_rank.model"),
    fact(
        "rank_efficiency_gpu_hours",
        "gpu_hours",
        "efficiency_rank.allocated_ms",
        about="The own GPU-hours on that model.",
    ),
    fact("efficiency_on_model", "share", "efficiency_rank.efficiency"),
    *efficiency_bounds("efficiency_on_model", attrgetter("efficiency_rank")),
    fact(
        "rank_efficiency_unconfirmed",
        "words",
        "efficiency_rank.unconfirmed",
        "boolean",
        about="Whether any of the compared efficiencies has bounds.",
    ),
)
"""Columns beside a rank by efficiency, of rows with an `efficiency_rank`."""


def teams(people: People) -> Table | None:
    """Return the teams; None if no team has a name."""
    if all(person.name is None for person in people.teams):
        return None
    return _people("team", tr("GPU time by team"), people.teams, people.money)


def users(people: People) -> Table:
    """Return the users of the scope, the most GPU time first."""
    return _people("user", tr("GPU time by user"), people.users, people.money)


def people_columns(
    kind: Kind, people: Sequence[UserFigures] = (), currency: str = "", *, with_money: bool = False
) -> tuple[Column, ...]:
    """Return the columns of `people`, who are teams or users. Unknown teams and costs have no column.

    Columns for programs are the same for teams and users.
    """
    most_ms = max((each.allocated_ms for each in people), default=0.0)
    measured = measured_columns(each.card_use for each in people)

    def bar(person: UserFigures) -> StateBar:
        spans = zip(
            ALLOCATED_USED_FIRST,
            (person.effective_ms, person.low_unused_ms, *(person.state_ms[state] for state in IDLE_ALLOCATED[::-1])),
            strict=True,
        )
        return StateBar({state: ratio(span_ms, most_ms) or 0.0 for state, span_ms in spans})

    return (
        column("name", tr("name"), kind, label_or_name, "name"),
        fact("label", "name"),
        column(
            "team",
            tr("team"),
            "team",
            lambda person: plain(person.team, NAME_MOST) if person.team else "",
            "team",
            audience="all" if any(each.team is not None for each in people) else "programs",
        ),
        column(
            "bar", tr("effective, low use, stalled, held idle, allocated but unused"), "bar", bar, audience="people"
        ),
        fact("gpu_hours", "gpu_hours", "total_ms"),
        column("allocated_gpu_hours", tr("GPU-hours"), "gpu_hours", "allocated_ms"),
        column("effective_gpu_hours", tr("effective"), "gpu_hours", "effective_ms", audience="people"),
        column("low_gpu_hours", state_label("low"), "gpu_hours", "low_unused_ms", audience="people"),
        *map(state_hours, IDLE_ALLOCATED[::-1]),
        fact("unconfirmed_gpu_hours", "gpu_hours", "allocated_open_ms"),
        column("efficiency", tr("efficiency"), "share", efficiency, "efficiency"),
        *efficiency_bounds("efficiency"),
        *(each if each.key in measured else replace(each, audience="programs") for each in CARD_USE_COLUMNS),
        fact("rank_gpu_time", "count", about="1 is the most GPU time."),
        fact("ranked", "count", about="Among how many by GPU time; ranks are those among everybody."),
        column("rank_efficiency", tr("rank"), "words", _rank, "efficiency_rank.place", json_type="integer"),
        column(
            "amount",
            tr("cost, {currency}", currency=currency) if with_money else "",
            "money",
            lambda person: Number(from_cents(person.paid_cents), 2),
            audience="all" if with_money else "programs",
        ),
        *RANK_FACTS,
    )


def _people(kind: Kind, title: str, people: Sequence[UserFigures], money: Money) -> Table:
    ordered = sorted(people, key=lambda each: (-each.allocated_ms, each.label))
    return Table(
        name=f"{kind}s",
        title=title,
        question=tr("Who had GPUs, and how much of the time did they use them?"),
        headline=_headline(ordered),
        columns=people_columns(kind, people, money.currency, with_money=money.accounts.total.paid_cents is not None),
        rows=tuple(ordered),
        shown=_LISTED,
        rest=more_with_hours([each.allocated_ms for each in ordered[_LISTED:]]),
        notes=(
            *rank_notes(each.efficiency_rank for each in ordered),
            *low_note(sum(each.state_ms["low"] for each in ordered), sum(each.low_by_sm_ms for each in ordered)),
            *unconfirmed_note(
                sum(each.allocated_open_ms for each in ordered) if any(each.leaves_open for each in ordered) else 0
            ),
            *card_use_note(money.accounts.total_card_use),
        )
        if ordered
        else (),
        terms=(term("efficiency"), term("effective time"), *card_use_terms(money.accounts.total_card_use))
        if ordered
        else (),
        states=ALLOCATED_USED_FIRST if ordered else (),
        wide=True,
    )


def _headline(ordered: Sequence[UserFigures]) -> str:
    if not ordered:
        return tr("No GPU was allocated or used.")
    total_ms = sum(each.allocated_ms for each in ordered)
    idle = max(ordered, key=_lost_ms)
    all_lost_ms, open_ms = sum(map(_lost_ms, ordered)), sum(each.allocated_open_ms for each in ordered)
    if not all_lost_ms and open_ms:
        return tr("{hours} GPU-hours were allocated; no idle time among them is confirmed.", hours=GpuHours(total_ms))
    if not all_lost_ms:
        return tr("{hours} GPU-hours were allocated, and all of them were used.", hours=GpuHours(total_ms))
    return tr(
        "{share} of {hours} allocated GPU-hours were not used; {name} has the most, {most} GPU-hours.",
        share=Share(ratio(all_lost_ms, total_ms)),
        hours=GpuHours(total_ms),
        most=GpuHours(_lost_ms(idle)),
        name=label_or_name(idle),
    )


def _lost_ms(person: UserFigures) -> float:
    """Return the allocated time that is confirmed as idle."""
    return person.idle_allocated_ms - person.allocated_open_ms


def rank_notes(ranks: Iterable[EfficiencyRank | None]) -> tuple[str, ...]:
    """Return how ranks are made, and what an unconfirmed one is, if there is any."""
    unconfirmed = any(rank is not None and rank.unconfirmed for rank in ranks)
    return (RANK, _UNCONFIRMED) if unconfirmed else (RANK,)


def efficiency(row: Account) -> Share | str | None:
    """Return the efficiency, with bounds where it is only sampled."""
    return None if row.efficiency is None else _share_or_range(row.efficiency, row.efficiency_bound)


def efficiency_on_model(rank: EfficiencyRank) -> Share | str:
    """Return the efficiency of the rank, likewise."""
    return _share_or_range(rank.efficiency, rank.efficiency_bound)


def _share_or_range(share: float, bound: tuple[float, float] | None) -> Share | str:
    if bound is None:
        return Share(share)
    low, high = map(Share, bound)
    return tr("{low} to {high}", low=low, high=high)


def rank_place(rank: EfficiencyRank) -> Sentence:
    """Return the rank and its model: `1/7 H100 SXM`, or `1/7 H100 SXM, unconfirmed`."""
    place = tr("{rank}/{compared} {model}", rank=rank.place, compared=rank.compared, model=card_name(rank.model))
    return tr("{place}, unconfirmed", place=place) if rank.unconfirmed else place


def _rank(person: UserFigures) -> str:
    """Return the rank, with the efficiency on the ranked model if it differs from the row's; empty without a rank."""
    rank = person.efficiency_rank
    if rank is None:
        return ""
    place = rank_place(rank)
    own, compared = (None if share is None else round(100 * share, 1) for share in (person.efficiency, rank.efficiency))
    return place if own == compared else tr("{label}: {value}", label=place, value=efficiency_on_model(rank))


def low_note(low_ms: float, low_by_sm_ms: float) -> list[str]:
    """Return how low use counts as effective; empty if there is no low use."""
    by_sm = ratio(low_by_sm_ms, low_ms)
    if by_sm is None:
        return []
    return [
        tr(
            "{hours} GPU-hours of low use count as effective in proportion to their activity: SM activity for {share}"
            " of them, utilization for the others. The remainder is shown as low use.",
            hours=GpuHours(low_ms),
            share=Share(by_sm),
        )
    ]


def label_or_name(row: Account) -> str:
    """Return the name, or the words for a missing name."""
    return tr(row.label) if row.name is None else plain(row.name, NAME_MOST)
