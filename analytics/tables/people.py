"""Who was given GPUs, and what became of them: teams and users with their rank."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.glossary import term
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share, from_cents
from analytics.language.sentences import tr
from analytics.ledger.summary import OPEN_FROM, ratio
from analytics.report.figures import UserFigures
from analytics.report.model import Report
from analytics.states import ALLOCATED_USED_FIRST
from analytics.tables.names import NAME_MOST, account_name, card_name
from analytics.tables.point_samples import unconfirmed_note
from analytics.tables.table import Cell, Column, StateBar, Table

_LISTED = 12


def teams(report: Report) -> Table | None:
    """None where no team has a name."""
    if all(person.name is None for person in report.teams):
        return None
    return _people(report, "team", tr("What teams were given"), report.teams)


def users(report: Report) -> Table:
    """Those of the scope, the most GPU time first."""
    return _people(report, "holder", tr("What users were given"), report.holders)


def _people(report: Report, kind: str, title: str, people: Sequence[UserFigures]) -> Table:
    ordered = sorted(people, key=lambda each: (-each.allocated_ms, each.label))
    most_ms = max((each.allocated_ms for each in ordered), default=0.0)
    rest = ordered[_LISTED:]
    with_team = any(each.team is not None for each in ordered)
    with_money = report.money.accounts.total.paid_cents is not None
    currency = report.money.currency
    return Table(
        name=f"{kind}s",
        title=title,
        question=tr("Who was given GPUs, and how much of that was used?"),
        headline=_headline(ordered),
        columns=(
            Column("name", tr("name"), "team" if kind == "team" else "holder"),
            *((Column("team", tr("team"), "team"),) if with_team else ()),
            Column("bar", tr("useful, low, held, reserved"), "bar"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("useful", tr("useful"), "gpu_hours"),
            Column("low", tr("low"), "gpu_hours"),
            Column("held", tr("held idle"), "gpu_hours"),
            Column("reserved", tr("reserved"), "gpu_hours"),
            Column("efficiency", tr("efficiency"), "share"),
            Column("rank_efficiency", tr("rank"), "words"),
            *((Column("cost", tr("cost, {currency}", currency=currency), "money"),) if with_money else ()),
        ),
        rows=tuple(_row(each, most_ms, with_team=with_team, with_money=with_money) for each in ordered),
        shown=_LISTED,
        rest=tr(
            "and {number} more with {hours} GPU-hours",
            number=Number(len(rest)), hours=GpuHours(sum(each.allocated_ms for each in rest)),
        ),
        notes=(
            tr("Rank 1 is the most efficient of all who had a GPU-hour or more of the same model: for each, the model of which it had most."),
            *low_note(ordered),
            *unconfirmed_note(sum(each.open_ms for each in ordered) if any(map(_is_open, ordered)) else 0),
        ) if ordered else (),
        terms=(term("efficiency"), term("effective time")) if ordered else (),
        states=ALLOCATED_USED_FIRST if ordered else (),
        wide=True,
    )  # fmt: skip


def _headline(ordered: Sequence[UserFigures]) -> str:
    if not ordered:
        return tr("Nobody was given a GPU.")
    total_ms = sum(each.allocated_ms for each in ordered)
    idle = max(ordered, key=_lost_ms)
    all_lost_ms, open_ms = sum(map(_lost_ms, ordered)), sum(each.open_ms for each in ordered)
    if not all_lost_ms and open_ms:
        return tr("{hours} GPU-hours were given out; what was idle is not confirmed.", hours=GpuHours(total_ms))
    if not all_lost_ms:
        return tr("{hours} GPU-hours were given out, and all of them were used.", hours=GpuHours(total_ms))
    return tr(
        "{share} of {hours} GPU-hours given out were held or reserved without use; the most, {most}, by {name}.",
        share=Share(ratio(all_lost_ms, total_ms)), hours=GpuHours(total_ms), most=GpuHours(_lost_ms(idle)), name=_name(idle),
    )  # fmt: skip


def _lost_ms(person: UserFigures) -> float:
    """Given out and confirmed to be idle."""
    return person.held_ms + person.reserved_ms - person.open_ms


def _is_open(person: UserFigures) -> bool:
    return person.open_ms > 0 and person.open_ms >= OPEN_FROM * person.allocated_ms


def efficiency(person: UserFigures) -> Share | str | None:
    """Its share, as the least where point samples leave more open."""
    share = None if person.efficiency is None else Share(person.efficiency)
    return tr("{share} or more", share=share) if share and _is_open(person) else share


def _rank(person: UserFigures) -> str:
    """With the efficiency on the model that is compared, where it is not that of the row; empty for those who had theirs to themselves."""
    rank = person.efficiency_rank
    if rank is None:
        return ""
    place = tr("{rank}/{compared} {model}", rank=Number(rank.place), compared=Number(rank.compared), model=card_name(rank.model))  # fmt: skip
    own, compared = (None if share is None else round(100 * share, 1) for share in (person.efficiency, rank.efficiency))
    return place if own == compared else tr("{label}: {value}", label=place, value=Share(rank.efficiency))


def low_note(people: Sequence[UserFigures]) -> list[str]:
    """By what their low time counts; nothing where they have none."""
    low_ms = sum(each.low_ms for each in people)
    by_sm = ratio(sum(each.low_by_sm_ms for each in people), low_ms)
    if by_sm is None:
        return []
    return [
        tr(
            "{hours} GPU-hours in the state low count as useful by their activity (SM activity for {share} of them, else utilization); the rest stands under low.",
            hours=GpuHours(low_ms), share=Share(by_sm),
        )
    ]  # fmt: skip


def _name(person: UserFigures) -> str:
    return account_name(person.label) if person.name is None else plain(person.name, NAME_MOST)


def _row(each: UserFigures, most_ms: float, *, with_team: bool, with_money: bool) -> tuple[Cell, ...]:
    spans = {"active": each.effective_ms, "low": each.low_unused_ms, "held": each.held_ms, "reserved": each.reserved_ms}
    return (
        _name(each),
        *((plain(each.team, NAME_MOST) if each.team else "",) if with_team else ()),
        StateBar({state: ratio(span_ms, most_ms) or 0.0 for state, span_ms in spans.items()}),
        GpuHours(each.allocated_ms),
        GpuHours(each.effective_ms),
        GpuHours(each.low_unused_ms),
        GpuHours(each.held_ms),
        GpuHours(each.reserved_ms),
        efficiency(each),
        _rank(each),
        *((Number(from_cents(each.cents), 2),) if with_money else ()),
    )
