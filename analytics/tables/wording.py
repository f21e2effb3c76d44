"""The head of a report: its title, and the sentences that a reader takes away."""

from __future__ import annotations

from analytics.decide.review import waiting_rules
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Share
from analytics.language.sentences import tr
from analytics.ledger.summary import OPEN_FROM
from analytics.report.model import Report
from analytics.scope import Scope
from analytics.states import UNUSED
from analytics.tables.facts import silent_host_names
from analytics.tables.give_back import give_back_sentence
from analytics.tables.point_samples import every, state_share, useful_share
from analytics.tables.readiness import waiting
from analytics.tables.recommendations import saving_headline

TITLE = tr("GPU waste report")


def title(report: Report) -> SentenceList:
    """What it is, the week, and what it is narrowed to: `GPU waste report, 2026-W46, pool train`."""
    return SentenceList([TITLE, *([report.week.label] if report.week else []), *scope_parts(report.scope)], ", ")


def page_title(report: Report) -> str:
    """The same for a page that names the scope below."""
    return TITLE if report.week is None else tr("GPU waste report, {week}", week=report.week.label)


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
    if report.is_empty:
        known = report.known
        if report.fleet_was_seen and report.seen.silent:
            return tr(
                "Nothing of {scope} was observed in this window. Silent: {hosts}.",
                scope=SentenceList(scope_parts(report.scope), ", "), hosts=silent_host_names(report.seen.silent),
            )  # fmt: skip
        if report.fleet_was_seen:
            return tr("Nothing in this window is of {scope}.", scope=SentenceList(scope_parts(report.scope), ", "))
        return tr(
            "Nothing was observed in this window. The lake has rows from {since} to {until}.",
            since=Moment(known.since_ms or 0), until=Moment(known.until_ms or 0),
        )  # fmt: skip
    if not report.summary.totals.observed_ms:
        return tr("Nothing was observed in this window.")
    return _unused(report)


def _unused(report: Report) -> str:
    """What went unused of the time that was seen, and by what it was seen where that leaves it open."""
    spent = report.summary.totals
    if spent.leaves_open:
        bound = spent.unused_bound
        return tr(
            "Between {low} and {high} of {observed} GPU-hours went unused: free {free}, reserved {reserved}, held {held}; active {active}.",
            low=GpuHours(bound.low_ms), high=GpuHours(bound.high_ms), observed=GpuHours(spent.observed_ms),
            active=useful_share(report), **{state: state_share(report, state) for state in UNUSED},
        )  # fmt: skip
    if (spent.sampled or 0.0) >= OPEN_FROM:
        return tr(
            "{wasted} of {observed} GPU-hours went unused, {sampled} of them sampled every {span}: {free} free, {reserved} reserved, {held} held; {active} were active.",
            wasted=GpuHours(spent.unused_ms), observed=GpuHours(spent.observed_ms), active=Share(spent.share("active")),
            sampled=Share(spent.sampled), span=every(report), **{state: Share(spent.share(state)) for state in UNUSED},
        )  # fmt: skip
    return tr(
        "{wasted} of {observed} observed GPU-hours went unused: {free} free, {reserved} reserved, {held} held; {active} were active.",
        wasted=GpuHours(spent.unused_ms), observed=GpuHours(spent.observed_ms), active=Share(spent.share("active")),
        **{state: Share(spent.share(state)) for state in UNUSED},
    )  # fmt: skip


def asked_for(report: Report) -> str:
    """What can be given back and what the decisions save together, as of the end or of the last moment seen.

    Behind it the rules that know too little to find anything yet. Nothing where nothing was seen.
    """
    if report.is_empty:
        return ""
    found, last_ms = report.recommendations, report.seen.last_ms
    back = [] if found.reclaimable is None else [give_back_sentence(found.reclaimable)]
    is_late = last_ms is not None and not report.seen.to_the_end
    is_late = is_late and (found.reclaimable is None or found.reclaimable.unseen_since_ms is None)
    stale = [tr("Nothing was seen after {moment}.", moment=Moment(last_ms or 0))] if is_late else []
    return with_waiting(report, SentenceList([*back, saving_headline(found), *stale], " "))


def with_waiting(report: Report, said: str) -> str:
    """The sentence, and behind it the rules that know too little to find anything yet."""
    more = waiting(waiting_rules(report.review.context))
    return SentenceList([said, more], " ") if more else said
