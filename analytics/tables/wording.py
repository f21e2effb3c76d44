"""The head of a report: its title, and the sentences that a reader takes away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analytics.decide.review import Review, WaitingRule, waiting_rules
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import OPEN_FROM, Summary
from analytics.report.parts import Heading
from analytics.report.report import Report
from analytics.rules import RULES
from analytics.scope import Scope
from analytics.states import UNUSED
from analytics.tables.facts import silent_host_names
from analytics.tables.give_back import give_back_sentence
from analytics.tables.point_samples import every, state_share, useful_share
from analytics.tables.recommendations import saving_headline
from analytics.tables.table import fact, rows_column

_NAMED = 3
"""The first to speak that are named; of the others the last moment is said."""

WAITING = rows_column(
    "waiting",
    (fact("rule", "words", nullable=False), fact("from", "moment", "from_ms", nullable=False)),
    "",
    "Rules that need more history than there was, with the moment from which they can find something.",
)
"""Of `waiting_rules`."""


def waiting(rules: Sequence[WaitingRule]) -> str:
    """`7 of 22 rules need more history: held from 14:05, ...`; empty where none does."""
    if not rules:
        return ""
    named = [tr("{rule} from {moment}", rule=each.rule, moment=Moment(each.from_ms)) for each in rules[:_NAMED]]
    more = len(rules) - _NAMED
    last = Moment(rules[-1].from_ms)
    rest = (
        [tr_many("{number} more up to {moment}", "{number} more up to {moment}", more, moment=last)] if more > 0 else []
    )
    return tr_many(
        "{number} of {rules} rules needs more history before it can find anything: {named}.",
        "{number} of {rules} rules need more history before they can find anything: {named}.",
        len(rules),
        rules=len(RULES),
        named=SentenceList([*named, *rest], ", "),
    )


TITLE = tr("GPU waste report")


def title(heading: Heading) -> SentenceList:
    """What it is, the week, and what it is narrowed to: `GPU waste report, 2026-W46, pool train`."""
    return SentenceList([TITLE, *([heading.week.label] if heading.week else []), *scope_parts(heading.scope)], ", ")


def page_title(heading: Heading) -> str:
    """The same for a page that names the scope below."""
    return TITLE if heading.week is None else tr("GPU waste report, {week}", week=heading.week.label)


def scope_parts(scope: Scope) -> list[Sentence]:
    """What a report is narrowed to; nothing for the whole fleet."""
    return [
        *([tr("pool {name}", name=plain(scope.pool))] if scope.pool is not None else []),
        *([tr("model {name}", name=plain(scope.model))] if scope.model is not None else []),
        *([tr("team {name}", name=plain(scope.team))] if scope.team is not None else []),
        *([tr("user {name}", name=plain(scope.holder))] if scope.holder is not None else []),
    ]


def headline(report: Report) -> str:
    """The one sentence that a reader takes away."""
    heading, ledger = report.heading, report.ledger
    if ledger.is_empty:
        known, seen = heading.known, ledger.seen
        if heading.fleet_was_seen and seen.silent:
            return tr(
                "Nothing of {scope} was observed in this window. Silent: {hosts}.",
                scope=SentenceList(scope_parts(heading.scope), ", "),
                hosts=silent_host_names(seen.silent),
            )
        if heading.fleet_was_seen:
            return tr("Nothing in this window is of {scope}.", scope=SentenceList(scope_parts(heading.scope), ", "))
        return tr(
            "Nothing was observed in this window. The lake has rows from {since} to {until}.",
            since=Moment(known.since_ms or 0),
            until=Moment(known.until_ms or 0),
        )
    if not ledger.summary.totals.observed_ms:
        return tr("Nothing was observed in this window.")
    return _unused(ledger.summary)


def _unused(summary: Summary) -> str:
    """What went unused of the time that was seen, and by what it was seen where that leaves it open."""
    spent = summary.totals
    if spent.leaves_open:
        bound = spent.unused_bound
        return tr(
            "Between {low} and {high} of {observed} GPU-hours went unused: free {free}, reserved {reserved}, held {held}; active {active}.",
            low=GpuHours(bound.low_ms),
            high=GpuHours(bound.high_ms),
            observed=GpuHours(spent.observed_ms),
            active=useful_share(summary),
            **{state: state_share(summary, state) for state in UNUSED},
        )
    if (spent.sampled or 0.0) >= OPEN_FROM:
        return tr(
            "{wasted} of {observed} GPU-hours went unused, {sampled} of them sampled every {span}: {free} free, {reserved} reserved, {held} held; {active} were active.",
            wasted=GpuHours(spent.unused_ms),
            observed=GpuHours(spent.observed_ms),
            active=Share(spent.share("active")),
            sampled=Share(spent.sampled),
            span=every(summary),
            **{state: Share(spent.share(state)) for state in UNUSED},
        )
    return tr(
        "{wasted} of {observed} observed GPU-hours went unused: {free} free, {reserved} reserved, {held} held; {active} were active.",
        wasted=GpuHours(spent.unused_ms),
        observed=GpuHours(spent.observed_ms),
        active=Share(spent.share("active")),
        **{state: Share(spent.share(state)) for state in UNUSED},
    )


def asked_for(report: Report) -> str:
    """What can be given back and what the decisions save together, as of the end or of the last moment seen.

    Behind it the rules that know too little to find anything yet. Nothing where nothing was seen.
    """
    if report.ledger.is_empty:
        return ""
    seen, found = report.ledger.seen, report.recommendations
    given = found.reclaimable
    back = [] if given is None else [give_back_sentence(given)]
    is_late = not seen.to_the_end and (given is None or given.unseen_since_ms is None)
    late = [] if seen.last_ms is None else [tr("Nothing was seen after {moment}.", moment=Moment(seen.last_ms))]
    return with_waiting(report.review, SentenceList([*back, saving_headline(found), *(late if is_late else [])], " "))


class Lead(NamedTuple):
    """What stands before the first figure: that GPUs are simulated, what is asked for, and what went unused; empty for nothing."""

    simulated: str
    asked: str
    headline: str


def lead(report: Report) -> Lead:
    """Return what every document, message and page begins with."""
    return Lead(report.heading.simulated, asked_for(report), headline(report))


def with_waiting(review: Review, said: str) -> str:
    """The sentence, and behind it the rules that know too little to find anything yet."""
    more = waiting(waiting_rules(review.context))
    return SentenceList([said, more], " ") if more else said
