"""Lists of findings: those to act on, last week's that ended, and snoozed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from analytics.decide.actions import Action
from analytics.decide.lifecycle import action_sentence
from analytics.decide.reversals import Reversals
from analytics.glossary import STATUSES
from analytics.language.sentences import Amount, Day, Sentence, SentenceList, Share, Span, plain, tr, tr_many
from analytics.quality.model import Stamp
from analytics.report.parts import ScopedReview
from analytics.tables.basis import marked
from analytics.tables.finding_heading import ENDED, heading, more_of_low, user_name
from analytics.tables.names import CONFIDENCE, GPU_HOURS, NAME_MOST, RULE
from analytics.tables.table import Column, LinkedCell, Table, column
from analytics.workloads.model import CATEGORIES, Finding
from fallow.actors import LINK, PERSON
from fallow.clock import HOUR_MS

_LISTED = 4


def by_cost(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by cost, the highest first. Findings without a price come last, by GPU time."""
    return sorted(findings, key=lambda each: (each.cost is None, -(each.cost or 0.0), -each.gpu_ms, each.finding_id))


def _became(review: ScopedReview, finding: Finding) -> str:
    """Return the outcome of a finding: `reversed: last week's finding was wrong: ...`."""
    if finding.status != "reversed" or not finding.notes:
        return tr(finding.status)
    why = tr("{status}: {why}", status=tr(finding.status), why=finding.notes[-1])
    again = any(each.finding_id == finding.finding_id for each in review.findings)
    return tr("{what}; found again this week", what=why) if again else why


def notified(review: ScopedReview, finding: Finding) -> str:
    """Return the number of nudges to the user and the time of the last."""
    sent = nudges(review, finding)
    if not sent:
        return tr("never")
    return tr_many("{number} {time|times}, last on {day}", len(sent), day=Day(sent[-1].time_ms))


def nudges(review: ScopedReview, finding: Finding) -> list[Action]:
    """Return the nudges about a finding, the earliest first."""
    return [each for each in review.actions.get(finding.finding_id, ()) if each.kind == "notify"]


def notes(review: ScopedReview, finding: Finding) -> tuple[str, ...]:
    """Return the finding's notes. An edition for people leaves out the names and the words of others."""
    unnamed = {
        str(action_sentence(action)): action
        for action in review.actions.get(finding.finding_id, ())
        if not _may_name(review, action)
    }
    return tuple(_unnamed(unnamed[each]) if each in unnamed else each for each in finding.notes)


def _may_name(review: ScopedReview, action: Action) -> bool:
    """Return True if the report may name who acted.

    Reports for the fleet name everybody, reports for people only their reader.
    """
    is_own = action.actor.kind in (PERSON, LINK) and action.actor.name in review.people
    return is_own or not review.scope.is_personal


def _unnamed(action: Action) -> Sentence:
    """Return time and kind of an action, without actor, reason and address."""
    did = action_sentence(replace(action, reason="", channel=""))
    return tr("{label}: {value}", label=did.values["moment"], value=did.values["what"])


def gone(review: ScopedReview) -> Table:
    """Return last week's findings that ended, with their outcome, wrong ones first."""
    own = sorted(by_cost(review.ended), key=lambda each: each.status != "reversed")
    return replace(
        _apart(review, own, column("about", tr("outcome"), "sentence", lambda each: _became(review, each))),
        name="gone",
        title=tr("Last week's findings that ended"),
        question=tr("How often were last week's findings wrong?"),
        headline=_reversals(review),
        terms=tuple(STATUSES[name] for name in ("closed", "unseen", "reversed")) if own else (),
    )


def snoozed(review: ScopedReview) -> Table:
    """Return the snoozed findings: by which person, until when and why."""
    own = review.snoozed
    hidden = tr_many("{number} {finding is|findings are} snoozed.", len(own))
    return replace(
        _apart(review, own, column("about", tr("reason"), "sentence", lambda each: _hidden(review, each))),
        name="snoozed",
        title=tr("Snoozed"),
        question=tr("Which findings are snoozed, until when and why?"),
        headline=hidden if own else tr("No finding is snoozed."),
    )


def _apart(review: ScopedReview, own: Sequence[Finding], about: Column) -> Table:
    """Return a row per finding, for a table that the caller names; `about` is the last column."""
    currency = next((each.currency for each in own if each.currency), "")
    with_cost = any(each.cost is not None for each in own)
    return Table(
        name="",
        title="",
        question="",
        headline="",
        columns=(
            column(
                "finding",
                tr("finding"),
                "finding",
                lambda each: LinkedCell(
                    tr("{id}: {sentence}", id=each.finding_id, sentence=heading(each, review)),
                    "finding",
                    each.finding_id,
                ),
            ),
            column("user", tr("user"), "user", whose, "user"),
            marked(GPU_HOURS),
            marked(
                column(
                    "cost",
                    tr("cost, {currency}", currency=plain(currency)),
                    "money",
                    audience="all" if with_cost else "programs",
                )
            ),
            about,
        ),
        rows=tuple(own),
        shown=_LISTED,
        rest=tr_many("and {number} more {finding|findings}", len(own) - _LISTED),
        wide=True,
    )


def findings_about(
    review: ScopedReview, about: Callable[[Finding], bool], *, name: str, title: str, question: str
) -> Table:
    """Return a row per chosen finding of the window."""
    found, low = (list(filter(about, own)) for own in (review.shown, review.low))
    return Table(
        name=name,
        title=title,
        question=question,
        headline=tr_many("{number} {finding|findings} in this window.", len(found))
        if found
        else tr("No finding in this window."),
        columns=(FINDING, CONFIDENCE, USER, _SINCE, *_SIZE),
        rows=tuple(found),
        notes=(tr("{sentence}.", sentence=more_of_low(len(low))),) if low else (),
        wide=True,
    )


FINDING = column(
    "finding", tr("finding"), "finding", lambda each: LinkedCell(each.sentence, "finding", each.finding_id)
)
USER = column("user", tr("user"), "user", lambda each: each.user or tr(each.without_user), "user")
"""Columns of a `Finding`, with links."""
_SINCE = column("since", tr("since"), "moment", "since_ms")
_SIZE = (
    column("gpus", tr("GPUs"), "count", lambda each: len(each.gpus)),
    GPU_HOURS,
    marked(column("cost", tr("cost"), "money", lambda each: Amount(each.cost, each.currency))),
)
CATEGORY_NAMES = {
    "reclaim": tr("reclaim"),
    "right_size": tr("right-size"),
    "efficiency": tr("efficiency"),
    "demand": tr("demand"),
    "coverage": tr("not observed"),
}


def all_findings(review: ScopedReview) -> Table:
    """Return every finding of the window, including low confidence and snoozed ones, to sort and filter.

    A word with an order has its place in the order as value. The value of the confidence is the number of failed
    conditions.
    """
    return Table(
        name="all_findings",
        title=tr("All findings"),
        question=tr("What is reclaimable, who uses it, what is the next command, and who handles it?"),
        headline="",
        columns=(
            column("finding", tr("finding"), "finding", lambda each: heading(each, review)),
            column(
                "confidence",
                tr("confidence"),
                "grade",
                confidence_words,
                lambda each: len(each.confidence.failed),
                json_type="integer",
            ),
            column("user", tr("user"), "user", user_name),
            column("team", tr("team"), "team", lambda each: plain(each.team or "")),
            column(
                "status",
                tr("status"),
                "state",
                lambda each: tr(each.status),
                lambda each: [*STATUSES].index(each.status),
                json_type="integer",
            ),
            column("host", tr("host"), "host", lambda each: plain(each.host)),
            *_SIZE,
            _SINCE,
            column(
                "notified",
                tr("user nudged"),
                "count",
                lambda each: notified(review, each),
                lambda each: len(nudges(review, each)),
            ),
            column(
                "next_command",
                tr("next command"),
                "words",
                lambda each: plain(each.next_command, 4000) or ENDED,
            ),
            column(
                "category",
                tr("category"),
                "words",
                lambda each: CATEGORY_NAMES[each.category],
                lambda each: CATEGORIES.index(each.category),
                json_type="integer",
            ),
            RULE,
            column("finding_id", tr("id"), "finding"),
        ),
        rows=review.findings,
        wide=True,
    )


def confidence_words(finding: Finding) -> str:
    """Return the confidence and the number of failed conditions: `medium, 1 condition not met`."""
    grade, failed = tr(finding.confidence.grade), len(finding.confidence.failed)
    return tr_many("{grade}, {number} {condition|conditions} not met", failed, grade=grade) if failed else grade


def whose(finding: Finding) -> str:
    """Return the user, with the team where it is known."""
    name = user_name(finding, NAME_MOST)
    return tr("{user} (team {team})", user=name, team=plain(finding.team)) if finding.team else name


def _hidden(review: ScopedReview, finding: Finding) -> str:
    """Return why, by whom and until which day a finding is snoozed.

    An edition for people leaves out names and words of others.
    """
    last = next(each for each in reversed(review.actions[finding.finding_id]) if each.kind == "snooze")
    until = None if last.expires_ms is None else Day(last.expires_ms - 1)  # an end is the first moment after
    if not _may_name(review, last):
        return tr("no end date") if until is None else tr("until {day}", day=until)
    reason = plain(last.reason, 200) if last.reason else tr("no reason given")
    if until is None:
        return tr("{reason} ({actor})", reason=reason, actor=last.by)
    return tr("{reason} ({actor}, until {day})", reason=reason, actor=last.by, day=until)


def _reversals(review: ScopedReview) -> str:
    """Return how often last week's findings were wrong. An edition for people shows the rate of all findings."""
    found = review.reversals
    if found is None:
        return tr("The week before was not observed, so nothing can be compared.")
    rate = reversals_text(found)
    return tr("{rate}.", rate=rate if review.scope.is_all else tr("whole fleet: {rate}", rate=rate))


def reversals_text(found: Reversals) -> Sentence:
    """Return how often last week's findings were wrong, in one sentence."""
    until, unseen = Stamp(found.until_ms), found.not_judged
    if not found.n:
        none = tr("reversals: no finding up to {until} with reclaimable GPUs can be judged", until=until)
        return tr("{sentence} ({number} not observed since)", sentence=none, number=unseen) if unseen else none
    low, high = found.total.interval
    grades = [
        tr("{grade} {wrong} of {judged}", grade=tr(grade), wrong=rate.wrong, judged=rate.judged)
        for grade, rate in found.by_grade.items()
    ]
    judged = tr_many(
        "reversals: of {number} {finding|findings} up to {until}, {wrong} ({rate}; {low} to {high} at 90 %): {grades}",
        found.n,
        until=until,
        wrong=tr_many(
            "{number} {was|were} wrong within {horizon}",
            found.total.wrong,
            horizon=Span(found.horizon_ms - found.horizon_ms % HOUR_MS),
        ),
        rate=Share(found.rate, 0),
        low=Share(low, 0),
        high=Share(high, 0),
        grades=SentenceList(grades, ", "),
    )
    if not unseen:
        return judged
    return tr("{sentence}; {number} not judged, not observed since", sentence=judged, number=unseen)
