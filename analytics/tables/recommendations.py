"""What to do: the decisions, what each saves in a year, who acts, and how they add up to the waste."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any

from analytics.decide.actions import Action
from analytics.decide.recommendations import OPERATORS, GroupBy, Recommendation, Recommendations, Saving, Waste, grouped
from analytics.glossary import term
from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Day, GpuHours, Moment, Number, from_cents
from analytics.language.sentences import tr, tr_many
from analytics.names import JOINER
from analytics.tables.finding_heading import at_most
from analytics.tables.give_back import RECLAIMABLE_COLUMNS, give_back_sentence
from analytics.tables.names import CONFIDENCE, GPU_HOURS, GPUS, POOL, place_name
from analytics.tables.table import (
    Cell,
    Column,
    LinkedCell,
    Table,
    column,
    column_of,
    entries_column,
    fact,
    flag,
    for_programs,
    record_column,
    rows_column,
)
from analytics.workloads.commands import acts
from analytics.workloads.model import GRADES
from fallow.clock import DAY_MS, HOUR_MS, format_ms

_RANKED_FIRST = 12
_LOOKED_AT_FIRST = 8
"""Of the things to look at; those that wasted less than a GPU-hour are never listed."""

ACTION_WORDS: Mapping[str, str] = {
    "return": tr("give back"),
    "release": tr("release"),
    "reclaim": tr("take back"),
    "right-size": tr("right-size"),
    "repair": tr("repair"),
    "schedule off-peak": tr("use off-peak hours"),
    "ask": tr("ask"),
}
"""The actions as people read them."""


def recommendations(found: Recommendations, first: int | None = _RANKED_FIRST, *, in_brief: bool = False) -> Table:
    """Those that are known to save something, the most first; `first` shortens the list and says so.

    `in_brief` leaves out the columns that stand behind each decision in a report.
    """
    listed = found.ranked
    table = Table(
        name="recommendations",
        title=tr("What to do"),
        question=tr("What to give back, take back or change, what that saves in a year, and who has to act?"),
        headline=saving_headline(found),
        columns=_COLUMNS,
        rows=listed,
        shown=first,
        rest=_left_out(len(listed), first),
        notes=(_BASIS,) if listed else (),
        terms=(term("recommendation"), term("reclaimable")),
        wide=in_brief,
    )
    return table.with_columns(_IN_BRIEF) if in_brief else table


_BASIS = tr(
    "Each GPU is in one decision. What is given back is worth its whole price; anything else frees time for others, priced as the waste on those GPUs "
    "in the last four weeks. In brackets the least and the most of these weeks: no forecast. Ranked by that."
)


def _left_out(number: int, first: int | None) -> str:
    rest = 0 if first is None else max(0, number - first)
    return tr_many("and {number} more in the list of all", "and {number} more in the list of all", rest) if rest else ""


def to_look_at(found: Recommendations) -> Table | None:
    """Those without a known saving, or too unsure of it; None where there are none."""
    listed = sorted(found.to_look_at, key=lambda each: (-(each.cents or 0), -each.gpu_ms, each.recommendation_id))
    if not listed:
        return None
    shown = min(_LOOKED_AT_FIRST, max(1, sum(each.gpu_ms >= HOUR_MS for each in listed)))
    return Table(
        name="to_look_at",
        title=tr("To look at"),
        question=tr("What wastes GPU time, without a saving that is known and sure enough?"),
        headline=tr_many(
            "{number} thing to look at or to ask about; no saving is claimed for it.",
            "{number} things to look at or to ask about; no saving is claimed for them.",
            len(listed),
        ),
        columns=(
            column("recommendation", tr("what"), "sentence", _linked),
            column("owner", tr("whom to ask"), "words", who_acts, "owner"),
            CONFIDENCE,
            _COST,
            GPU_HOURS,
        ),
        rows=tuple(listed),
        shown=shown,
        rest=tr_many("and {number} more that wasted less", "and {number} more that wasted less", len(listed) - shown),
        wide=True,
    )


@dataclass(frozen=True)
class _WastePart:
    """The wasted time that the decisions of one kind act on, and its cents: None where nothing has a price.

    `decisions` is None for what no decision acts on.
    """

    action: str
    decisions: int | None
    gpu_ms: float
    cents: int | None


def waste(found: Recommendations) -> Table:
    """How the decisions and what none can act on add up to the waste."""
    whole = found.waste
    low = GpuHours(whole.state_ms["low"])
    return Table(
        name="waste",
        title=tr("How the waste adds up"),
        question=tr("Which part of the waste does each kind of decision act on, and which none?"),
        headline=_waste_headline(found),
        columns=(
            column("action", tr("action"), "words"),
            column(
                "decisions",
                tr("decisions"),
                "count",
                lambda part: "" if part.decisions is None else part.decisions,
                "decisions",
            ),
            GPU_HOURS,
            column(
                "cost",
                tr("cost, {currency}", currency=whole.currency),
                "money",
                lambda part: Number(from_cents(part.cents), 2),
            ),
        ),
        rows=tuple(_waste_parts(found)),
        notes=(
            *_unconfirmed(whole),
            tr(
                "Waste is unavailable, free, reserved and held time, and the unused part of low time: {low} GPU-hours of it.",
                low=low,
            ),
            tr(
                "Not actionable is what no decision can act on: short pauses, the reserve, fragments, pools whose need is not known yet."
            ),
        ),
        terms=(term("waste"),),
    )


def _waste_parts(found: Recommendations) -> Iterator[_WastePart]:
    """One part for each action, then what none acts on, then the sum."""
    actions: dict[str, list[Recommendation]] = {}
    for each in found.listed:
        actions.setdefault(ACTION_WORDS[each.action] if each.is_standing else tr("put off on request"), []).append(each)
    for words, own in actions.items():
        priced = [each.cents for each in own if each.cents is not None]
        # a sum of 0 is unknown where any of it has no price
        known = sum(priced)
        cents = known if known or len(priced) == len(own) else None
        yield _WastePart(words, len(own), sum(each.gpu_ms for each in own), cents)
    rest = found.waste
    yield _WastePart(tr("not actionable"), None, rest.not_actionable_ms, rest.not_actionable_cents)
    yield _WastePart(tr("waste"), len(found.listed), rest.gpu_ms, rest.cents)


def _waste_headline(found: Recommendations) -> str:
    said = _wasted(found.waste)
    if found.waste.cents is None or not found.waste.unpriced_ms:
        return said
    unpriced = tr("{hours} of these GPU-hours have no price.", hours=GpuHours(found.waste.unpriced_ms))
    return SentenceList([said, unpriced], " ")


def _wasted(spent: Waste) -> str:
    if spent.cents is None:
        hours = GpuHours(spent.gpu_ms)
        if spent.open_ms:
            return tr("Up to {hours} GPU-hours were wasted; no price is known.", hours=hours)
        return tr("{hours} GPU-hours were wasted; no price is known.", hours=hours)
    if spent.open_cents:
        return tr(
            "Between {least} and {amount} were wasted (up to {hours} GPU-hours); decisions act on all but {rest} of it.",
            least=Amount(from_cents(spent.cents - spent.open_cents), spent.currency),
            amount=Amount(from_cents(spent.cents), spent.currency),
            hours=GpuHours(spent.gpu_ms),
            rest=Amount(from_cents(spent.not_actionable_cents), spent.currency),
        )
    if spent.cents == spent.not_actionable_cents:
        return tr(
            "{amount} were wasted ({hours} GPU-hours); no decision acts on it.",
            amount=Amount(from_cents(spent.cents), spent.currency),
            hours=GpuHours(spent.gpu_ms),
        )
    return tr(
        "{amount} were wasted ({hours} GPU-hours); decisions act on all but {rest} of it.",
        amount=Amount(from_cents(spent.cents), spent.currency),
        hours=GpuHours(spent.gpu_ms),
        rest=Amount(from_cents(spent.not_actionable_cents), spent.currency),
    )


def _unconfirmed(spent: Waste) -> Iterator[str]:
    """A finance director asks what of the sum nobody measured."""
    if spent.open_ms and spent.open_cents is not None:
        yield tr(
            "{amount} of it ({hours} GPU-hours) are not confirmed: point samples alone call that time idle.",
            amount=Amount(from_cents(spent.open_cents), spent.currency),
            hours=GpuHours(spent.open_ms),
        )
    elif spent.open_ms:
        yield tr(
            "{hours} GPU-hours of it are not confirmed: point samples alone call that time idle.",
            hours=GpuHours(spent.open_ms),
        )


def saving_headline(found: Recommendations) -> str:
    """What the ranked decisions are worth together, and whether nobody but a list says so."""
    if (saved := found.saving) is None:
        if found.waste.cents is None and found.listed:
            return tr("No price is known: no decision is ranked by what it is worth.")
        return tr("No decision is known to save something in this window.")
    said = _worth(found, saved)
    return (
        SentenceList([said, tr("Public list prices count in that sum, not what you pay.")], " ")
        if found.at_list_price
        else said
    )


def _worth(found: Recommendations, saved: Saving) -> str:
    number, currency = len(found.ranked), found.waste.currency
    total = saving_words(saved, currency)
    if found.given_back is None:
        return tr_many(
            "{number} decision would free GPU time worth {saving} a year for others.",
            "{number} decisions would free GPU time worth {saving} a year for others.",
            number,
            saving=total,
        )
    if found.freed is None:
        return tr_many(
            "{number} decision would give back GPUs that cost {saving} a year.",
            "{number} decisions would give back GPUs that cost {saving} a year.",
            number,
            saving=total,
        )
    return tr(
        "{number} decisions are worth {saving} a year: {paid} is what the GPUs to give back cost, {freed} is GPU time freed for others.",
        number=number,
        saving=total,
        paid=a_year(found.given_back.point, currency),
        freed=a_year(found.freed.point, currency),
    )


def a_year(amount: float, currency: str) -> str:
    """`12,300 USD`: an estimate has no cents."""
    return tr("{amount} {currency}", amount=round(amount), currency=currency)


def saving_words(saving: Saving, currency: str) -> str:
    """`12,300 USD (8,000 to 14,000)`."""
    low, point, high = (Number(round(each)) for each in (saving.low, saving.point, saving.high))
    if round(saving.low) == round(saving.high):
        return a_year(saving.point, currency)
    return tr("{amount} {currency} ({low} to {high})", amount=point, currency=currency, low=low, high=high)


def _next(each: Recommendation) -> str:
    """Its command, with a word where it only looks and changes nothing."""
    command = plain(each.next_command, 1000)
    if not command or acts(each.next_command):
        return command
    return tr("{label}: {value}", label=tr("to look first"), value=command)


def _linked(each: Recommendation) -> Cell:
    return LinkedCell(decision(each), "recommendation", each.recommendation_id, aside=each.recommendation_id)


def deadline_day(deadline_ms: int) -> Day:
    """The last day to act: a deadline is the end of a day."""
    return Day(deadline_ms - 1)


def cost_cell(each: Recommendation) -> Cell:
    """What its wasted time cost, empty where none was wasted."""
    return at_most(each.unconfirmed, Amount(from_cents(each.cents), each.currency)) if each.gpu_ms else ""


def owner_words(owner: str) -> str:
    return tr("operators") if owner == OPERATORS else plain(owner)


def who_acts(each: Recommendation) -> str:
    """Who has to act; operators, where nobody's name is known, with the team or job that has the GPUs."""
    words = owner_words(each.owner)
    return words if each.given_to is None else tr("{operators}, with {who}", operators=words, who=plain(each.given_to))


def decision(each: Recommendation) -> str:
    """What to do, in a few words: `give back 4 GPUs of train, never used`."""
    number, place = len(each.gpus_now or each.gpus), _place(each)
    kept = each.action == "return" and not each.gpus_now
    kind = each.kind.name
    named = kind if each.action in ("return", "repair") and kind in _DECISIONS else each.action
    words = _DECISIONS.get("kept" if kept else named)
    if words is not None and (each.action != "right-size" or each.packing is not None):
        return words(number, place)
    what = each.evidence[0].sentence if each.evidence else tr("with wasted time")
    return tr_many("{number} GPU on {place} {what}", "{number} GPUs on {place} {what}", number, place=place, what=what)


def _place(each: Recommendation) -> str:
    return plain(each.host) if each.host and JOINER not in each.host else place_name(each.pool)


_DECISIONS: Mapping[str, Callable[[int, str], str]] = {
    "kept": lambda number, place: tr_many(
        "{number} GPU of {place} without use is kept: the pool may need it",
        "{number} GPUs of {place} without use are kept: the pool may need them",
        number,
        place=place,
    ),
    "never_used": lambda number, place: tr_many(
        "give back {number} GPU of {place}, never used",
        "give back {number} GPUs of {place}, never used",
        number,
        place=place,
    ),
    "surplus": lambda number, place: tr_many(
        "give back {number} GPU of {place} that is not needed",
        "give back {number} GPUs of {place} that are not needed",
        number,
        place=place,
    ),
    "faulty": lambda number, place: tr_many(
        "repair {number} GPU on {place} that was out of order",
        "repair {number} GPUs on {place} that were out of order",
        number,
        place=place,
    ),
    "release": lambda number, place: tr_many(
        "release {number} allocated GPU on {place} without a process",
        "release {number} allocated GPUs on {place} without a process",
        number,
        place=place,
    ),
    "reclaim": lambda number, place: tr_many(
        "take back {number} GPU on {place} held without a kernel",
        "take back {number} GPUs on {place} held without a kernel",
        number,
        place=place,
    ),
    "schedule off-peak": lambda _, place: tr("use the off-peak hours of {place}", place=place),
    "right-size": lambda number, place: tr_many(
        "pack the work of {number} GPU of {place} on fewer cards",
        "pack the work of {number} GPUs of {place} on fewer cards",
        number,
        place=place,
    ),
}


def first_decisions(found: Recommendations, number: int) -> list[dict[str, Any]]:
    """Return the cells of the first ranked decisions by the keys of `recommendations` in brief, with id and command as they are."""
    table = recommendations(found, number, in_brief=True)
    keys = [each.key for each in table.heads]
    as_it_is = attrgetter("recommendation_id", "next_command")
    return [
        dict(zip((*keys, "key", "next_command"), (*cells, *as_it_is(each)), strict=True))
        for cells, each in zip(table.listed, found.ranked, strict=False)
    ]


def first_recommendations(found: Recommendations) -> Table:
    """The first of them, else of what is to be looked at, and what can be given back; all of them are on a page of their own."""
    table, said = recommendations(found), []
    if not found.ranked and (looked_at := to_look_at(found)):
        table, said = looked_at, [table.headline]
    reclaimable = [] if found.reclaimable is None else [give_back_sentence(found.reclaimable)]
    return replace(
        table.with_columns(_IN_OVERVIEW),
        headline=SentenceList([*said, table.headline, *reclaimable], " "),
        rows=table.rows[:_IN_OVERVIEW_FIRST],
        shown=None,
        rest="",
        notes=(),
        wide=True,
    )


def by_group(found: Recommendations, by: GroupBy) -> Table:
    """A row for each owner or pool."""
    groups, currency = grouped(found, by), found.waste.currency
    name = owner_words if by == "owner" else place_name
    most = next(((each.name, each.saving) for each in groups if each.saving is not None), None)
    return Table(
        name=f"recommendations_by_{by}",
        title=tr("By who acts") if by == "owner" else tr("By pool"),
        question=tr("What do the decisions of each come to?"),
        headline=tr("No decision is known to save something in this window.")
        if most is None
        else tr("The most, {saving} a year: {name}.", saving=saving_words(most[1], currency), name=name(most[0])),
        columns=(
            column(
                "name",
                tr("who acts") if by == "owner" else tr("pool"),
                "words" if by == "owner" else "pool",
                lambda group: name(group.name),
                "name",
            ),
            column("decisions", tr("decisions"), "count", lambda group: len(group.listed)),
            GPUS,
            _saving_column(currency),
            GPU_HOURS,
            column(
                "cost", tr("wasted in this window"), "money", lambda group: Amount(from_cents(group.cents), currency)
            ),
        ),
        rows=groups,
    )


def put_off(found: Recommendations, actions: Mapping[str, Sequence[Action]]) -> Table | None:
    """Those that are put off, by the `actions` on their findings; None where there are none."""
    listed = tuple(each for each in found.listed if not each.is_standing)
    if not listed:
        return None

    def action_on(each: Recommendation) -> Action | None:
        """The newest one on its findings, the leading one first; None where the lake has none of them any more."""
        found = (action for finding in each.evidence for action in reversed(actions.get(finding.finding_id, ())))
        return next((action for action in found if action.kind == "suppress"), None)

    return Table(
        name="put_off",
        title=tr("Put off on request"),
        question=tr("What is left out of the decisions because somebody asked for it, and until when?"),
        headline=tr_many(
            "{number} decision is put off: nobody is asked to act on it.",
            "{number} decisions are put off: nobody is asked to act on them.",
            len(listed),
        ),
        columns=(
            _DECISION,
            _OWNER,
            column("actor", tr("put off by"), "name", lambda each: (action := action_on(each)) and action.by),
            column("until", tr("until"), "words", lambda each: _until(action_on(each))),
            column("reason", tr("reason"), "name", lambda each: _reason(action_on(each))),
            _COST,
        ),
        rows=listed,
        wide=True,
    )


def _until(action: Action | None) -> Cell:
    if action is None:
        return tr("not known")
    return tr("until somebody reopens it") if action.expires_ms is None else Moment(action.expires_ms)


def _reason(action: Action | None) -> str:
    return "" if action is None or not action.reason else plain(action.reason, 200)


def _amount(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


def _saving_column(currency: str | None = None) -> Column:
    """What a row saves in a year; `currency` is the row's own where none is named."""
    return column(
        "saving",
        tr("worth a year"),
        "words",
        lambda row: "" if row.saving is None else saving_words(row.saving, currency or row.currency),
        lambda row: None if row.saving is None else asdict(row.saving),
        json_type="object",
    )


_DECISION = column("recommendation", tr("decision"), "sentence", _linked)
_OWNER = column("owner", tr("who acts"), "words", who_acts, "owner")
_COST = column(
    "cost", tr("wasted in this window"), "money", cost_cell, lambda each: _amount(each.cents), json_type="number"
)
_GPUS = column("gpus", tr("GPUs"), "count", lambda each: len(each.gpus_now))
_DEADLINE = column(
    "deadline",
    tr("deadline"),
    "moment",
    lambda each: deadline_day(each.deadline_ms),
    lambda each: format_ms(each.deadline_ms),
)
_NEXT = column("next", tr("next"), "words", _next, "next_command")
_COLUMNS = (_DECISION, _OWNER, _saving_column(), CONFIDENCE, _GPUS, POOL, _COST, _DEADLINE, _NEXT)
_IN_BRIEF = ("recommendation", "owner", "saving", "confidence", "deadline")
_IN_OVERVIEW = ("recommendation", "owner", "saving", "confidence", "gpus", "pool", "cost")
_IN_OVERVIEW_FIRST = 6


def decisions_to_choose(found: Recommendations, hosts: Callable[[Recommendation], Sequence[str]]) -> Table:
    """Return every ranked decision, to sort and to filter, on the `hosts` that a function names.

    The saving is sorted by its point, the confidence by the place of its grade.
    """
    saving = replace(_saving_column(), kind="money", machine=lambda each: each.saving and each.saving.point)
    grade = replace(CONFIDENCE, machine=lambda each: GRADES.index(each.confidence.grade), json_type="integer")
    return replace(
        recommendations(found, None),
        columns=(
            _DECISION,
            column("action", tr("action"), "words", lambda each: ACTION_WORDS[each.action]),
            _OWNER,
            replace(saving, json_type="number"),
            _DEADLINE,
            grade,
            _GPUS,
            POOL,
            _COST,
            _NEXT,
            column("host", tr("host"), "host", lambda each: plain(JOINER.join(hosts(each)))),
            column("recommendation_id", tr("id"), "recommendation"),
        ),
    )


def by_gpu(table: Table) -> Table:
    """Return a row for each GPU to act on: pairs of a recommendation and the GPU, whose column is the first."""
    gpu = column("gpu", tr("GPU"), "gpu", lambda row: plain(row[1]))
    return replace(
        table,
        columns=(gpu, *(column_of(itemgetter(0), each) for each in table.columns)),
        rows=tuple((each, gpu) for each in table.rows for gpu in each.gpus_now),
    )


def decision_rows(found: Recommendations) -> Table:
    """Return for programs every decision, ranked or not."""
    return for_programs("decisions", DECISION_COLUMNS, found.listed)


_SAVING = tuple(fact(name, "number") for name in ("low", "point", "high"))
_SAVED = "What is saved in a year: as in this window, and the least and the most of the four before."
_WASTED_COST = fact("cost", "money", lambda waste: from_cents(waste.cents))
_WASTED_HOURS = fact("gpu_hours", "gpu_hours", "gpu_ms")


def _last_week(key: str, name: str) -> Column:
    return fact(f"{key}_last_week", "count", name)


DECISION_COLUMNS = (
    fact("id", "recommendation", "recommendation_id", nullable=False),
    fact("kind", "words", "kind.name", nullable=False),
    fact("action", "words", nullable=False),
    fact("owner", "words", about="Who has to act."),
    *(fact(name, "words") for name in ("holder", "team", "pool", "host")),
    fact("gpus", "gpu", json_type="array"),
    fact(
        "gpus_now",
        "gpu",
        json_type="array",
        about="Those to act on at the end of the window; each is in one recommendation.",
    ),
    fact("gpu_hours", "gpu_hours", "gpu_ms", about="Wasted in the window; none of it is in another recommendation."),
    fact("unconfirmed_gpu_hours", "gpu_hours", "unconfirmed_ms", about="Of that, what only point samples call idle."),
    fact("cost", "money", lambda each: from_cents(each.cents)),
    fact("currency", "words", lambda each: None if each.cents is None else each.currency),
    record_column("saving_per_year", _SAVING, "saving", _SAVED),
    flag("ranked", about="Whether it is known to save something; others are to be looked at."),
    CONFIDENCE,
    fact("failed_conditions", "words", "confidence.failed", "array"),
    record_column(
        "risk",
        (
            fact("probability", "share"),
            fact(
                "within_days",
                "number",
                lambda risk: None if risk.within_ms is None else risk.within_ms / DAY_MS,
                about="The time that the probability is about.",
            ),
            _last_week("short_hours", "short_hours"),
            _last_week("hours", "hours"),
            _last_week("short_gpus", "short_gpus"),
            fact("who_waits", "words", "waits"),
        ),
        about="What it costs to be wrong.",
    ),
    fact("horizon_days", "number", lambda each: each.horizon_ms / DAY_MS),
    fact("deadline", "moment", "deadline_ms", nullable=False),
    fact("status", "words", nullable=False),
    fact(
        "evidence",
        "finding",
        lambda each: tuple(finding.finding_id for finding in each.evidence),
        "array",
        "The ids of its findings, the one that leads first.",
    ),
    fact("next", "words", "next_command"),
    flag(
        "next_acts",
        lambda each: acts(each.next_command),
        "Whether the command changes something; others only look.",
    ),
    flag("at_list_price", about="Whether any of the GPUs to act on has a public list's price."),
    flag("simulated"),
)
"""Of a recommendation, in every format."""


def _by_state(ms: str, cents: str) -> Column:
    """Return the hours and the cost of each state, from two attributes of `Waste`."""

    def read(waste: Waste) -> dict[str, _StateWaste]:
        known = getattr(waste, cents)
        return {
            state: _StateWaste(spent_ms, None if known is None else known[state])
            for state, spent_ms in getattr(waste, ms).items()
        }

    return entries_column("by_state", record_column("", (_WASTED_HOURS, _WASTED_COST)), read)


@dataclass(frozen=True)
class _StateWaste:
    """Wasted time of one state, and its cents: None where nothing has a price."""

    gpu_ms: float
    cents: int | None


_WASTE_COLUMNS = (
    _WASTED_COST,
    fact("currency", "words", lambda waste: None if waste.cents is None else waste.currency),
    _WASTED_HOURS,
    fact("unpriced_gpu_hours", "gpu_hours", "unpriced_ms", about="What of it has no price and is in no sum of money."),
    record_column(
        "unconfirmed",
        (_WASTED_COST, _WASTED_HOURS),
        lambda waste: _StateWaste(waste.open_ms, waste.open_cents),
        "What of it only point samples call idle.",
    ),
    _by_state("state_ms", "state_cents"),
    record_column(
        "not_actionable",
        (
            fact("cost", "money", lambda waste: from_cents(waste.not_actionable_cents)),
            fact("gpu_hours", "gpu_hours", "not_actionable_ms"),
            _by_state("rest_ms", "rest_cents"),
        ),
        "",
        "What no decision can act on: short pauses, the reserve, fragments, pools whose need is not known yet.",
    ),
)
RECLAIMABLE = record_column(
    "reclaimable",
    RECLAIMABLE_COLUMNS,
    about="What can be given back at the end of the window: idle now, less the reserve, less what would break a whole "
    "host. Null in an edition for people.",
)
SAVINGS = (
    record_column("saving_per_year", _SAVING, "saving", f"{_SAVED} All ranked ones together."),
    record_column("given_back_per_year", _SAVING, "given_back", "Of that, what the GPUs cost that are given back."),
    record_column("freed_per_year", _SAVING, "freed", "Of that, GPU time that others can use."),
    record_column(
        "waste",
        _WASTE_COLUMNS,
        about="Unavailable, free, reserved and held time, and the unused part of low time. The recommendations and what is "
        "not actionable add up to it.",
    ),
)
DECISIONS = rows_column("recommendations", DECISION_COLUMNS, "listed", "Every decision, those that are ranked first.")
"""Of `Recommendations`."""
