"""What teams and holders were given, with their rank beside their efficiency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number
from analytics.language.sentences import say
from analytics.render.blocks.block import Block
from analytics.render.money_text import amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.language.languages import Language
    from analytics.report.figures import Person
    from analytics.report.model import Report

_MOST = 12


def teams(report: Report, language: Language) -> Block | None:
    """None where no team has a name."""
    if all(person.name is None for person in report.teams):
        return None
    return _block(say("What teams were given"), report.teams, report, language)


def holders(report: Report, language: Language) -> Block:
    """Those of the scope, the most GPU time first."""
    return _block(say("What holders were given"), report.holders, report, language)


def _block(title: str, people: Sequence[Person], report: Report, language: Language) -> Block:
    ordered = sorted(people, key=lambda each: (-each.allocated_ms, each.label))
    with_team = any(each.team is not None for each in ordered)
    with_money = report.money.accounts.total.paid_cents is not None
    heads = (say("name"), *([say("team")] if with_team else []), say("GPU-hours"), say("held idle"), say("reserved"),
             say("efficiency"), say("rank"), *([report.money.currency] if with_money else []))  # fmt: skip
    shown, rest = ordered[:_MOST], ordered[_MOST:]
    more = say(
        "and {number} more with {hours} GPU-hours",
        number=Number(len(rest)), hours=GpuHours(sum(each.allocated_ms for each in rest)),
    )  # fmt: skip
    return Block(
        title=language.say(title),
        about=language.say("efficiency: the used share of the time given, and its rank among all"),
        head=tuple(language.say(each) for each in heads) if shown else (),
        rows=tuple(_row(each, language, with_team=with_team, with_money=with_money) for each in shown),
        words=frozenset({0, 1} if with_team else {0}),
        lines=(language.say(more),) if rest else () if shown else (language.say("Nobody was given a GPU."),),
    )


def _row(each: Person, language: Language, *, with_team: bool, with_money: bool) -> tuple[str, ...]:
    rank = "-" if each.rank_efficiency is None else f"{each.rank_efficiency}/{each.ranked}"
    return (
        language.say(say(each.label)) if each.name is None else plain(each.name),
        *([plain(each.team) if each.team else "-"] if with_team else []),
        *(language.hours(span) for span in (each.allocated_ms, each.held_ms, each.reserved_ms)),
        "-" if each.efficiency is None else language.percent(each.efficiency),
        rank,
        *([amount(each.cents, language)] if with_money else []),
    )
