"""Who was given GPUs, and what became of them: ranked bars, held against used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import say
from analytics.ledger.summary import ratio
from analytics.render.html import svg
from analytics.render.html.amounts import cents
from analytics.render.html.cells import bar, bdi
from analytics.render.html.chart import Chart, Table
from analytics.render.html.states import LOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.language.languages import Language
    from analytics.report.figures import Person
    from analytics.report.model import Report

_MOST = 12


def owners(report: Report, language: Language) -> tuple[Chart, ...]:
    """Teams, where any has a name, and holders."""
    named = any(person.name is not None for person in report.teams)
    teams = _chart("t", "By team", report.teams, report, language)
    holders = _chart("o", "By holder", report.holders, report, language)
    return (teams, holders) if named else (holders,)


def _chart(key: str, title: str, people: Sequence[Person], report: Report, language: Language) -> Chart:
    ordered = sorted(people, key=lambda each: (-each.allocated_ms, each.label))
    most_ms = max((each.allocated_ms for each in ordered), default=0.0)
    with_team = any(each.team is not None for each in ordered)
    head = ("#", "name", *(["team"] if with_team else []), "used, held, reserved", "GPU-hours given", "held idle", "reserved", "efficiency", "rank", "cost")  # fmt: skip
    rows = tuple(_row(each, most_ms, report.money.currency, language, with_team=with_team) for each in ordered[:_MOST])
    rest = ordered[_MOST:]
    others = say(
        "and {number} more with {hours} GPU-hours",
        number=Number(len(rest)), hours=GpuHours(sum(each.allocated_ms for each in rest)),
    )  # fmt: skip
    return Chart(
        key=key,
        title=language.say(title),
        finding=language.say(_finding(ordered)),
        drawing=Markup(),
        table=Table(
            tuple(language.say(each) for each in head),
            rows,
            words=frozenset({1, 2, 3} if with_team else {1, 2}),
            rest=language.say(others) if rest else "",
        ),
        legend=("active", "held", "reserved") if rows else (),
        note=language.say(
            "Efficiency is the used share of the time given; its rank is among those who were given GPUs."
        )
        if rows
        else "",
        wide=True,
    )


def _finding(ordered: Sequence[Person]) -> str:
    if not ordered:
        return say("Nobody was given a GPU.")
    total_ms = sum(each.allocated_ms for each in ordered)
    idle = max(ordered, key=lambda each: each.held_ms + each.reserved_ms)
    lost_ms = idle.held_ms + idle.reserved_ms
    if not lost_ms:
        return say("{hours} GPU-hours were given out, and all of them were used.", hours=GpuHours(total_ms))
    all_lost_ms = sum(each.held_ms + each.reserved_ms for each in ordered)
    return say(
        "{share} of {hours} GPU-hours given out were held or reserved without use; the most, {most}, by {name}.",
        share=Share(ratio(all_lost_ms, total_ms)), hours=GpuHours(total_ms), most=GpuHours(lost_ms),
        name=_name_of(idle),
    )  # fmt: skip


def _name_of(person: Person) -> str:
    return say(person.label) if person.name is None else svg.isolated(person.name)


def _row(
    each: Person, most_ms: float, currency: str, language: Language, *, with_team: bool
) -> tuple[str | Markup, ...]:
    used_ms = each.allocated_ms - each.held_ms - each.reserved_ms
    spans = (("active", used_ms), ("held", each.held_ms), ("reserved", each.reserved_ms))
    parts = [(ratio(span, most_ms) or 0.0, LOOKS[state].colour, 1.0) for state, span in spans]
    rank = "" if each.rank_gpu_time is None else language.number(each.rank_gpu_time)
    place = "" if each.rank_efficiency is None else f"{each.rank_efficiency}/{each.ranked}"
    name = language.say(each.label) if each.name is None else bdi(each.name)
    return (
        rank,
        name,
        *([bdi(each.team) if each.team else ""] if with_team else []),
        bar(parts),
        *(language.hours(span) for span in (each.allocated_ms, each.held_ms, each.reserved_ms)),
        language.percent(each.efficiency),
        place,
        language.money(cents(each.cents), currency),
    )
