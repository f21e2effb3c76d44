"""The head of a report: its title, and the sentences that a reader takes away."""

from __future__ import annotations

from analytics.decide.readiness import waiting_rules
from analytics.decide.totals import totals
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.report.model import Report
from analytics.scope import Scope
from analytics.sections.facts import silent_host_names
from analytics.sections.point_samples import state_share, useful_share
from analytics.sections.readiness import waiting
from analytics.states import UNUSED

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
    spent = report.summary.totals
    wasted = spent.unused_ms
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
    if not spent.observed_ms:
        return tr("Nothing was observed in this window.")
    if spent.leaves_open:
        bound = spent.unused_bound
        return tr(
            "Between {low} and {high} of {observed} GPU-hours went unused: free {free}, reserved {reserved}, held {held}; active {active}.",
            low=GpuHours(bound.low_ms), high=GpuHours(bound.high_ms), observed=GpuHours(spent.observed_ms),
            active=useful_share(report), **{state: state_share(report, state) for state in UNUSED},
        )  # fmt: skip
    return tr(
        "{wasted} of {observed} observed GPU-hours went unused: {free} free, {reserved} reserved, {held} held; {active} were active.",
        wasted=GpuHours(wasted), observed=GpuHours(spent.observed_ms), active=Share(spent.share("active")),
        **{state: Share(spent.share(state)) for state in UNUSED},
    )  # fmt: skip


def reclaimable(report: Report) -> str:
    """What the findings add up to, as of the end or of the last moment seen; a GPU in two findings counts once.

    Behind it the rules that know too little to find anything yet. Nothing where nothing was seen.
    """
    if report.is_empty:
        return ""
    return with_waiting(report, _reclaimable(report))


def with_waiting(report: Report, said: str) -> str:
    """The sentence, and behind it the rules that know too little to find anything yet."""
    more = waiting(waiting_rules(report.review.context))
    return SentenceList([said, more], " ") if more else said


def _reclaimable(report: Report) -> str:
    found = totals(report.findings)
    now, sure = found.gpus_to_take, found.gpus_to_take_surely
    last_ms = report.seen.last_ms
    if last_ms is not None and not report.seen.to_the_end:
        return _and_asked(_reclaimable_at(last_ms, now, sure), found.gpus_to_ask)
    if not now:
        return _and_asked(tr("No GPU could be taken back at the end of the window."), found.gpus_to_ask)
    taken = tr_many(
        "{number} GPU could be taken back at the end of the window, {sure} with high confidence.",
        "{number} GPUs could be taken back at the end of the window, {sure} with high confidence.",
        now, sure=Number(sure),
    )  # fmt: skip
    return _and_asked(taken, found.gpus_to_ask)


def _and_asked(taken: str, number: int) -> SentenceList:
    """The sentence, and behind it of how many more GPUs it is not sure enough that they would stay unused."""
    asked = tr_many("{number} GPU to ask about.", "{number} GPUs to ask about.", number)
    return SentenceList([taken, *([asked] if number else [])], " ")


def _reclaimable_at(last_ms: int, now: int, sure: int) -> str:
    if not now:
        return tr(
            "Whether a GPU could be taken back is not known: nothing was seen after {moment}.", moment=Moment(last_ms)
        )
    return tr_many(
        "{number} GPU could be taken back at {moment}, {sure} with high confidence; nothing was seen after that.",
        "{number} GPUs could be taken back at {moment}, {sure} with high confidence; nothing was seen after that.",
        now, moment=Moment(last_ms), sure=Number(sure),
    )  # fmt: skip
