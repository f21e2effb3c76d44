"""Recommendations: their value a year, who acts, and how they add up to the waste."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any

from analytics.decide.actions import Action
from analytics.decide.recommendations import OPERATORS, GroupBy, Recommendation, Recommendations, Waste, grouped
from analytics.glossary import term
from analytics.language.sentences import (
    Amount,
    Date,
    GpuHours,
    Moment,
    Number,
    Sentence,
    SentenceList,
    from_cents,
    plain,
    tr,
    tr_many,
)
from analytics.names import JOINER
from analytics.tables.basis import at_most, basis_fact, marked
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
from analytics.tables.value import (
    VALUE_WEEKS,
    cash_column,
    estimate_words,
    freed_column,
    value_column,
    value_headline,
)
from analytics.tables.verdicts import release_sentence, tested_columns
from analytics.workloads.commands import acts
from analytics.workloads.model import GRADES
from fallow.clock import DAY_MS, HOUR_MS

_RANKED_FIRST = 12
_LOOKED_AT_FIRST = 8
"""Most listed rows without a known value. Rows with less than a GPU-hour of waste are never listed."""

ACTION_WORDS: Mapping[str, str] = {
    "release": tr("release"),
    "reclaim": tr("reclaim"),
    "right-size": tr("right-size"),
    "repair": tr("repair"),
    "schedule off-peak": tr("use off-peak hours"),
    "ask": tr("ask"),
}


def recommendations(found: Recommendations, first: int | None = _RANKED_FIRST, *, in_brief: bool = False) -> Table:
    """Return the recommendations with a known value, the highest first.

    `first` shortens the list and adds a line about the others. `in_brief` leaves out the columns that the evidence of a
    report shows.
    """
    listed = found.ranked
    table = Table(
        name="recommendations",
        title=tr("Recommendations"),
        question=tr("What should be released, reclaimed or changed, what is it worth a year, and who acts?"),
        headline=value_headline(found),
        columns=_COLUMNS,
        rows=listed,
        shown=first,
        rest=tr_many("and {number} more {recommendation|recommendations}", len(listed) - (first or 0)),
        notes=(_BASIS,) if listed else (),
        terms=(term("recommendation"), term("releasable")),
        wide=in_brief,
    )
    return table.with_columns(_IN_BRIEF) if in_brief else table


_BASIS = tr(
    "Each GPU is in one recommendation. Freed GPU time counts at its price; it becomes money only if GPUs are sold or a"
    " purchase is avoided. Cash is rent or running cost that ends. The two figures are never added. Brackets show the"
    " lowest and the highest complete week, not a forecast. Rows are ranked by GPU time."
)


def to_look_at(found: Recommendations) -> Table | None:
    """Return recommendations without a known value; None if there are none.

    Recommendations of low confidence are summed in one line.
    """
    listed = sorted(found.to_look_at, key=lambda each: (-(each.cents or 0), -each.gpu_ms, each.recommendation_id))
    if not listed and not found.low:
        return None
    shown = min(_LOOKED_AT_FIRST, max(1, sum(each.gpu_ms >= HOUR_MS for each in listed)))
    return Table(
        name="to_look_at",
        title=tr("Waste without a known value"),
        question=tr("Which recommendations have no known value yet?"),
        headline=tr_many("{number} {recommendation has|recommendations have} no known value.", len(listed))
        if listed
        else _more_of_low(found),
        columns=(_DECISION, _OWNER, CONFIDENCE, _COST, marked(GPU_HOURS)),
        rows=tuple(listed),
        shown=shown,
        rest=tr_many("and {number} more with less waste", len(listed) - shown),
        notes=(_more_of_low(found),) if listed and found.low else (),
        wide=True,
    )


def _more_of_low(found: Recommendations) -> Sentence:
    """Return the number of recommendations of low confidence, and their total GPU-hours."""
    if not any(each.gpu_ms for each in found.low):
        return tr_many(
            "{number} {recommendation|recommendations} of low confidence {is|are} not listed.", len(found.low)
        )
    sentence = tr_many(
        "{number} {recommendation|recommendations} of low confidence {is|are} not listed: {hours} GPU-hours",
        len(found.low),
        hours=GpuHours(sum(each.gpu_ms for each in found.low)),
    )
    cents = _sum_of_cents(found.low)
    if cents is None:
        return tr("{sentence}.", sentence=sentence)
    return tr(
        "{sentence} that cost {amount}.", sentence=sentence, amount=Amount(from_cents(cents), found.waste.currency)
    )


def _sum_of_cents(listed: Sequence[Recommendation]) -> int | None:
    """Return the sum. None if nothing has a price, or if the sum is 0 and a part has no price."""
    priced = [each.cents for each in listed if each.cents is not None]
    known = sum(priced)
    return known if known or len(priced) == len(listed) else None


@dataclass(frozen=True)
class _WastePart:
    """Wasted time of one kind of recommendation, and its cents (None if nothing has a price).

    `decisions` is None for waste that no recommendation acts on.
    """

    action: str
    decisions: int | None
    gpu_ms: float
    cents: int | None


def waste(found: Recommendations) -> Table:
    """Return how the recommendations and the waste that is not actionable add up to all waste."""
    whole = found.waste
    return Table(
        name="waste",
        title=tr("How the waste adds up"),
        question=tr("How much of the waste do the recommendations act on?"),
        headline=_waste_headline(found),
        columns=(
            column("action", tr("action"), "words"),
            column("decisions", tr("recommendations"), "count", missing=""),
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
                "Waste is GPU time that was down, unallocated, allocated but unused, held idle or stalled, and the"
                " unused part of low use ({low} GPU-hours).",
                low=GpuHours(whole.state_ms["low"]),
            ),
            tr(
                "Not actionable: waste that no recommendation can act on, such as short pauses, the reserve, fragments,"
                " and pools whose demand is not known yet."
            ),
        ),
        terms=(term("waste"),),
    )


def _waste_parts(found: Recommendations) -> Iterator[_WastePart]:
    """Yield the parts of the waste and their sum.

    The parts are one per action, one for all recommendations of low confidence, and the waste that is not actionable.
    """
    actions: dict[str, list[Recommendation]] = {}
    for each in found.listed:
        if not each.is_snoozed and not each.confidence.is_low:
            actions.setdefault(ACTION_WORDS[each.action], []).append(each)
    apart = {tr("snoozed"): [each for each in found.listed if each.is_snoozed], tr("low confidence"): found.low}
    for words, own in (*actions.items(), *apart.items()):
        if own:
            yield _WastePart(words, len(own), sum(each.gpu_ms for each in own), _sum_of_cents(own))
    rest = found.waste
    yield _WastePart(tr("not actionable"), None, rest.not_actionable_ms, rest.not_actionable_cents)
    yield _WastePart(tr("waste"), len(found.listed), rest.gpu_ms, rest.cents)


def _waste_headline(found: Recommendations) -> str:
    """Return the waste, and the remainder after recommendations of at least medium confidence."""
    spent, hours = found.waste, GpuHours(found.waste.gpu_ms)
    if spent.cents is None:
        return tr(
            "Up to {hours} GPU-hours were wasted; no price is known."
            if spent.open_ms
            else "{hours} GPU-hours were wasted; no price is known.",
            hours=hours,
        )
    rest_cents = (spent.not_actionable_cents or 0) + (_sum_of_cents(found.low) or 0)
    sentence = tr(
        "Between {least} and {amount} was wasted (up to {hours} GPU-hours); recommendations act on all but {rest}."
        if spent.open_cents
        else "{amount} was wasted ({hours} GPU-hours); no recommendation acts on it."
        if spent.cents == rest_cents
        else "{amount} was wasted ({hours} GPU-hours); recommendations act on all but {rest}.",
        least=Amount(from_cents(spent.cents - (spent.open_cents or 0)), spent.currency),
        amount=Amount(from_cents(spent.cents), spent.currency),
        hours=hours,
        rest=Amount(from_cents(rest_cents), spent.currency),
    )
    if not spent.unpriced_ms:
        return sentence
    unpriced = tr("{hours} of these GPU-hours have no price.", hours=GpuHours(spent.unpriced_ms))
    return SentenceList([sentence, unpriced], " ")


def _unconfirmed(spent: Waste) -> Iterator[str]:
    if spent.open_ms:
        yield tr(
            (
                "{hours} GPU-hours of this waste are not confirmed: only point samples show this time as idle."
                if spent.open_cents is None
                else (
                    "{amount} of this waste ({hours} GPU-hours) is not confirmed: only point samples show this time as"
                    " idle."
                )
            ),
            amount=Amount(from_cents(spent.open_cents), spent.currency),
            hours=GpuHours(spent.open_ms),
        )


def _next(each: Recommendation) -> str:
    """Return the next command, marked if it only inspects and changes nothing."""
    command = plain(each.next_command, 1000)
    if not command or acts(each.next_command):
        return command
    return tr("{label}: {value}", label=tr("to check first"), value=command)


def _linked(each: Recommendation) -> Cell:
    return LinkedCell(decision(each), "recommendation", each.recommendation_id, aside=each.recommendation_id)


def cost_cell(each: Recommendation) -> Cell:
    """Return the cost of the wasted time; empty if there is no waste."""
    return at_most(each.unconfirmed, Amount(from_cents(each.cents), each.currency)) if each.gpu_ms else ""


def owner_words(owner: str) -> str:
    return tr("operators") if owner == OPERATORS else plain(owner)


def who_acts(each: Recommendation) -> str:
    """Return who acts. Operators act where no user is known, and then the team or job with the GPUs is named."""
    words = owner_words(each.owner)
    return words if each.given_to is None else tr("{operators}, with {who}", operators=words, who=plain(each.given_to))


def decision(each: Recommendation) -> str:
    """Return the recommendation in a few words: `release 4 GPUs of train, never used`."""
    number = len(each.gpus_now or each.gpus)
    place = plain(each.host) if each.host and JOINER not in each.host else place_name(each.pool)
    if each.kind.name == "off_peak":
        return tr("use the off-peak hours of {place}", place=place)
    if each.action == "release" and not each.gpus_now:
        return tr_many("keep {number} unused {GPU|GPUs} of {place}: the pool may need {it|them}", number, place=place)
    template = _WASTED.get(each.kind.name)
    if template is None or (each.action == "right-size" and each.packing is None):
        what = each.evidence[0].sentence if each.evidence else tr("with wasted time")
        return tr_many("{number} {GPU|GPUs} on {place} {what}", number, place=place, what=what)
    return tr(_DECISIONS[each.action], gpus=tr_many(template, number, place=place))


_DECISIONS: Mapping[str, str] = {
    "release": "release {gpus}",
    "reclaim": "reclaim {gpus}",
    "right-size": "pack the workloads of {gpus} on fewer cards",
    "repair": "repair {gpus}",
    "ask": "ask about {gpus}",
}
"""The recommendation by its action, so that it never names another one."""

_WASTED: Mapping[str, str] = {
    "never_used": "{number} {GPU|GPUs} of {place}, never used",
    "left_free": "{number} {GPU|GPUs} of {place}, unallocated for more than two weeks",
    "surplus": "{number} {GPU|GPUs} of {place} that {is|are} not needed",
    "faulty": "{number} {GPU|GPUs} on {place} that {was|were} down",
    "allocated_idle": "{number} {GPU|GPUs} on {place}, allocated without a process",
    "held_idle": "{number} {GPU|GPUs} on {place}, held idle",
    "oversized": "{number} {GPU|GPUs} of {place}",
}
"""The GPUs of a recommendation, by the kind of its waste."""


def first_decisions(found: Recommendations, number: int) -> list[dict[str, Any]]:
    """Return the cells of the first ranked recommendations by column key, with id and command unchanged."""
    table = recommendations(found, number, in_brief=True)
    keys = [each.key for each in table.heads]
    as_it_is = attrgetter("recommendation_id", "next_command")
    return [
        dict(zip((*keys, "key", "next_command"), (*cells, *as_it_is(each)), strict=True))
        for cells, each in zip(table.listed, found.ranked, strict=False)
    ]


def first_recommendations(found: Recommendations) -> Table:
    """Return the first ranked recommendations, else the first without a known value, and the releasable GPUs."""
    table, sentences = recommendations(found), []
    if not found.ranked and (looked_at := to_look_at(found)):
        table, sentences = looked_at, [table.headline]
    released = [] if found.fleet is None else [release_sentence(found.fleet)]
    return replace(
        table.with_columns(_IN_OVERVIEW),
        headline=SentenceList([*sentences, table.headline, *released], " "),
        rows=table.rows[:_IN_OVERVIEW_FIRST],
        shown=None,
        rest="",
        notes=(),
        wide=True,
    )


def by_group(found: Recommendations, by: GroupBy) -> Table:
    groups, currency = grouped(found, by), found.waste.currency
    name = owner_words if by == "owner" else place_name
    most = next(((each.name, value.freed) for each in groups if (value := each.value) and value.freed), None)
    return Table(
        name=f"recommendations_by_{by}",
        title=tr("By who acts") if by == "owner" else tr("By pool"),
        question=tr("What are the recommendations worth by group?"),
        headline=tr("No recommendation frees a known amount of GPU time.")
        if most is None
        else tr(
            "{name} has the most GPU time to free, worth {freed} a year.",
            freed=estimate_words(most[1], currency),
            name=name(most[0]),
        ),
        columns=(
            column(
                "name",
                tr("who acts") if by == "owner" else tr("pool"),
                "words" if by == "owner" else "pool",
                lambda group: name(group.name),
                "name",
            ),
            column("decisions", tr("recommendations"), "count", lambda group: len(group.listed)),
            GPUS,
            freed_column(currency),
            cash_column(currency),
            column("cost", tr("wasted"), "money", lambda group: Amount(from_cents(group.cents), currency)),
        ),
        rows=groups,
        notes=(tr("GPUs: all that the actions name, those to repair included; reclaimable GPUs are only a part."),)
        if by == "pool"
        else (),
        wide=True,
    )


def put_off(found: Recommendations, actions: Mapping[str, Sequence[Action]]) -> Table | None:
    """Return the snoozed recommendations, with the `actions` on their findings; None if there are none."""
    listed = tuple(each for each in found.listed if each.is_snoozed)
    if not listed:
        return None

    def action_on(each: Recommendation) -> Action | None:
        """Return the newest action on the findings, the leading finding first; None if the lake has no such action."""
        found = (action for finding in each.evidence for action in reversed(actions.get(finding.finding_id, ())))
        return next((action for action in found if action.kind == "snooze"), None)

    return Table(
        name="put_off",
        title=tr("Snoozed recommendations"),
        question=tr("Which recommendations are snoozed, until when and why?"),
        headline=tr_many("{number} {recommendation is|recommendations are} snoozed.", len(listed)),
        columns=(
            _DECISION,
            _OWNER,
            column("actor", tr("snoozed by"), "name", lambda each: (action := action_on(each)) and action.by),
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
    return tr("until reopened") if action.expires_ms is None else Moment(action.expires_ms)


def _reason(action: Action | None) -> str:
    return "" if action is None or not action.reason else plain(action.reason, 200)


_DECISION = column("recommendation", tr("recommendation"), "sentence", _linked)
_OWNER = column("owner", tr("who acts"), "words", who_acts, "owner")
_COST = column(
    "cost",
    tr("wasted in this window"),
    "money",
    cost_cell,
    lambda each: Number(from_cents(each.cents)),
    json_type="number",
)
_GPUS = column("gpus", tr("GPUs"), "count", lambda each: len(each.gpus_now))
_DEADLINE = column("deadline", tr("deadline"), "day", lambda each: Date(each.deadline))
_NEXT = column("next", tr("next step"), "words", _next, "next_command")
_COLUMNS = (_DECISION, _OWNER, freed_column(), cash_column(), CONFIDENCE, _GPUS, POOL, _COST, _DEADLINE, _NEXT)
_IN_BRIEF = ("recommendation", "owner", "freed", "cash", "confidence", "deadline")
_IN_OVERVIEW = ("recommendation", "owner", "freed", "cash", "confidence", "gpus", "pool", "cost")
_IN_OVERVIEW_FIRST = 6


def decisions_to_choose(found: Recommendations, hosts: Callable[[Recommendation], Sequence[str]]) -> Table:
    """Return every ranked recommendation, to sort and filter. `hosts` returns the hosts of a recommendation.

    Freed time and cash sort by their point estimates, the confidence by the place of its grade.
    """

    def by_point(figure: Column) -> Column:
        found = column_of(f"value.{figure.key}", fact("", "money", "point"))
        return replace(figure, kind="money", json_type="number", machine=found.value)

    grade = replace(CONFIDENCE, machine=lambda each: GRADES.index(each.confidence.grade), json_type="integer")
    return replace(
        recommendations(found, None),
        columns=(
            _DECISION,
            column("action", tr("action"), "words", lambda each: ACTION_WORDS[each.action]),
            _OWNER,
            by_point(freed_column()),
            by_point(cash_column()),
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
    """Return a row per pair of recommendation and GPU to act on; the GPU is the first column."""
    gpu = column("gpu", tr("GPU"), "gpu", lambda row: plain(row[1]))
    return replace(
        table,
        columns=(gpu, *(column_of(itemgetter(0), each) for each in table.columns)),
        rows=tuple((each, gpu) for each in table.rows for gpu in each.gpus_now),
    )


def decision_rows(found: Recommendations) -> Table:
    """Return every recommendation, ranked or not, for programs."""
    return for_programs("decisions", DECISION_COLUMNS, found.listed)


_WASTED_COST = fact("cost", "money", lambda waste: from_cents(waste.cents))
_WASTED_HOURS = fact("gpu_hours", "gpu_hours", "gpu_ms")


DECISION_COLUMNS = (
    fact("id", "recommendation", "recommendation_id", nullable=False),
    fact("kind", "words", "kind.name", nullable=False),
    fact("action", "words", nullable=False),
    fact("owner", "words", about="Who has to act."),
    *(fact(name, "words") for name in ("user", "team", "pool", "host")),
    fact("gpus", "gpu", json_type="array"),
    fact(
        "gpus_now",
        "gpu",
        json_type="array",
        about="Those to act on at the end of the window; each is in one recommendation.",
    ),
    fact("gpu_hours", "gpu_hours", "gpu_ms", about="Wasted in the window; none of it is in another recommendation."),
    fact("unconfirmed_gpu_hours", "gpu_hours", "unconfirmed_ms", about="Of that, what only point samples call idle."),
    basis_fact("basis", "basis"),
    fact("cost", "money", lambda each: from_cents(each.cents)),
    fact("currency", "words", lambda each: None if each.cents is None else each.currency),
    value_column("What acting on `gpus_now` is worth a year, by the complete weeks of `value_weeks`."),
    flag("ranked", about="Whether it is known to free GPU time with a price; others are to be looked at."),
    CONFIDENCE,
    fact("failed_conditions", "words", "confidence.failed", "array"),
    record_column(
        "risk",
        (
            fact("probability", "share"),
            column_of(
                "within_ms",
                fact("within_days", "number", lambda ms: ms / DAY_MS, about="The time that the probability is about."),
            ),
            *tested_columns("tested"),
            fact("who_waits", "words", "waits"),
        ),
        about="What it costs to be wrong.",
    ),
    fact("horizon_days", "number", lambda each: each.horizon_ms / DAY_MS),
    fact(
        "deadline",
        "day",
        nullable=False,
        about="The last day on which acting is in time, in the site's time zone.",
    ),
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
    flag("simulated"),
)
"""Columns of a `Recommendation`, in every format."""


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
    """Wasted time of one state, and its cents (None if nothing has a price)."""

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
VALUES = (
    value_column("What all ranked ones are worth a year together. Bounds are sums of bounds."),
    VALUE_WEEKS,
    record_column(
        "waste",
        _WASTE_COLUMNS,
        about=(
            "Unavailable, free, reserved, held and stalled time, and the unused part of low time. The recommendations"
            " and what is not actionable add up to it."
        ),
    ),
)
DECISIONS = rows_column("recommendations", DECISION_COLUMNS, "listed", "Every decision, those that are ranked first.")
"""Columns of `Recommendations`."""
