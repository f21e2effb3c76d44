"""The beginning of a report: its title and its main sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analytics.decide.review import WaitingRule, waiting_rules
from analytics.language.sentences import GpuHours, Moment, Sentence, SentenceList, Share, plain, tr, tr_many
from analytics.ledger.summary import OPEN_FROM, Summary
from analytics.report.parts import Heading
from analytics.report.report import Report
from analytics.rules import RULES
from analytics.scope import Scope
from analytics.states import UNUSED
from analytics.tables.facts import silent_host_names
from analytics.tables.point_samples import busy_share, every, state_share
from analytics.tables.table import fact, rows_column
from analytics.tables.value import value_headline
from analytics.tables.verdicts import release_sentence

_NAMED = 3
"""Most waiting rules with names; the sentence names the last moment of the others."""

WAITING = rows_column(
    "waiting",
    (fact("rule", "words", nullable=False), fact("from", "moment", "from_ms", nullable=False)),
    "",
    "Rules that need more history than there was, with the moment from which they can find something.",
)
"""Columns of `waiting_rules`."""


def waiting(rules: Sequence[WaitingRule]) -> str:
    """Return the rules that need more history: `7 of 22 rules ...: held at 14:05, ...`; empty if there are none."""
    if not rules:
        return ""
    named = [tr("{rule} at {moment}", rule=each.rule, moment=Moment(each.from_ms)) for each in rules[:_NAMED]]
    more = len(rules) - _NAMED
    last = Moment(rules[-1].from_ms)
    rest = [tr_many("{number} more by {moment}", more, moment=last)] if more > 0 else []
    return tr_many(
        "{number} of {rules} rules {has|have} too little history and {starts|start} later: {named}.",
        len(rules),
        rules=len(RULES),
        named=SentenceList([*named, *rest], ", "),
    )


TITLE = tr("GPU waste report")


def title(heading: Heading) -> SentenceList:
    """Return the title with week and scope: `GPU waste report, 2026-W46, pool train`."""
    return SentenceList([TITLE, *([heading.week.label] if heading.week else []), *scope_parts(heading.scope)], ", ")


def page_title(heading: Heading) -> str:
    """Return the title for a page that shows the scope below."""
    return TITLE if heading.week is None else tr("GPU waste report, {week}", week=heading.week.label)


def scope_parts(scope: Scope) -> list[Sentence]:
    """Return the parts of the scope; empty for the whole fleet."""
    return [
        *([tr("pool {name}", name=plain(scope.pool))] if scope.pool is not None else []),
        *([tr("model {name}", name=plain(scope.model))] if scope.model is not None else []),
        *([tr("team {name}", name=plain(scope.team))] if scope.team is not None else []),
        *([tr("user {name}", name=plain(scope.user))] if scope.user is not None else []),
    ]


def headline(report: Report) -> str:
    heading, ledger = report.heading, report.ledger
    if ledger.is_empty:
        known, seen = heading.known, ledger.seen
        if heading.fleet_was_seen and seen.silent:
            return tr(
                "Nothing was observed in this window for {scope}. Silent hosts: {hosts}.",
                scope=SentenceList(scope_parts(heading.scope), ", "),
                hosts=silent_host_names(seen.silent),
            )
        if heading.fleet_was_seen:
            return tr("This window has no GPU time of {scope}.", scope=SentenceList(scope_parts(heading.scope), ", "))
        return tr(
            "Nothing was observed in this window. The lake has rows from {since} to {until}.",
            since=Moment(known.since_ms or 0),
            until=Moment(known.until_ms or 0),
        )
    if not ledger.summary.totals.observed_ms:
        return tr("Nothing was observed in this window.")
    return _unused(ledger.summary)


def _unused(summary: Summary) -> str:
    """Return how much of the observed time was unused, with bounds where it is only sampled."""
    spent = summary.totals
    if spent.leaves_open:
        bound = spent.unused_bound
        return tr(
            "Between {low} and {high} of {observed} GPU-hours were not used: unallocated {free}, allocated but unused"
            " {reserved}, held idle {held}, stalled {stalled}; busy {active}.",
            low=GpuHours(bound.low_ms),
            high=GpuHours(bound.high_ms),
            observed=GpuHours(spent.observed_ms),
            active=busy_share(summary),
            **{state: state_share(summary, state) for state in UNUSED},
        )
    return tr(
        (
            "{wasted} of {observed} GPU-hours were not used ({sampled} sampled every {span}): {free} unallocated,"
            " {reserved} allocated but unused, {held} held idle, {stalled} stalled; {active} were busy."
            if (spent.sampled or 0.0) >= OPEN_FROM
            else (
                "{wasted} of {observed} observed GPU-hours were not used: {free} unallocated, {reserved} allocated but"
                " unused, {held} held idle, {stalled} stalled; {active} were busy."
            )
        ),
        wasted=GpuHours(spent.unused_ms),
        observed=GpuHours(spent.observed_ms),
        active=busy_share(summary),
        sampled=Share(spent.sampled),
        span=every(summary),
        **{state: Share(spent.share(state)) for state in UNUSED},
    )


def asked_for(report: Report) -> str:
    """Return the releasable GPUs and the value of the recommendations, as of the last observation.

    The rules with too little history follow. Empty if nothing was observed.
    """
    if report.ledger.is_empty:
        return ""
    seen, found = report.ledger.seen, report.recommendations
    given = found.fleet
    back = [] if given is None else [release_sentence(given)]
    is_late = not seen.to_the_end and (given is None or given.unseen_since_ms is None)
    late = [] if seen.last_ms is None else [tr("Nothing was observed after {moment}.", moment=Moment(seen.last_ms))]
    return with_waiting(report, SentenceList([*back, value_headline(found), *(late if is_late else [])], " "))


class Lead(NamedTuple):
    """Sentences before the first figure: simulated GPUs, the main recommendation, and unused time.

    Empty strings are left out.
    """

    simulated: str
    asked: str
    headline: str


def lead(report: Report) -> Lead:
    """Return the beginning of every document, message and page."""
    return Lead(report.heading.simulated, asked_for(report), headline(report))


def with_waiting(report: Report, sentence: str) -> str:
    """Return the sentence, followed by the rules that have too little history."""
    more = waiting(waiting_rules(report.whole.context))
    return SentenceList([sentence, more], " ") if more else sentence
