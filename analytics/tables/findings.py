"""Findings in lists: those to act on, what became of last week's, and those that somebody has hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analytics.decide.actions import Action
from analytics.decide.lifecycle import action_sentence
from analytics.decide.reversals import Rate, Reversals
from analytics.glossary import STATUSES, Term
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Day, Number, Share, Span
from analytics.language.sentences import tr, tr_many
from analytics.quality.model import Stamp
from analytics.report.parts import ScopedReview
from analytics.tables.finding_heading import ENDED, at_most, heading, user_name
from analytics.tables.names import CONFIDENCE, GPU_HOURS, NAME_MOST, RULE
from analytics.tables.table import Column, LinkedCell, Table, column
from analytics.workloads.model import CATEGORIES, Finding
from fallow.actors import LINK, PERSON
from fallow.clock import HOUR_MS

_LISTED = 4
_REASON_MOST = 200
_COMMAND_MOST = 4000


def by_cost(findings: Iterable[Finding]) -> list[Finding]:
    """The costliest first; those without a price last, by GPU time."""
    return sorted(findings, key=lambda each: (each.cost is None, -(each.cost or 0.0), -each.gpu_ms, each.finding_id))


def _became(review: ScopedReview, finding: Finding) -> str:
    """`reversed: last week's was wrong: used again from ...`."""
    if finding.status != "reversed" or not finding.notes:
        return tr(finding.status)
    why = tr("{status}: {why}", status=tr(finding.status), why=finding.notes[-1])
    again = any(each.finding_id == finding.finding_id for each in review.findings)
    return tr("{what}; found again this week", what=why) if again else why


def notified(review: ScopedReview, finding: Finding) -> str:
    """How often the user was notified, and when last."""
    sent = [each for each in review.actions.get(finding.finding_id, ()) if each.kind == "notify"]
    if not sent:
        return tr("never")
    return tr_many(
        "{number} time, last on {day}", "{number} times, last on {day}", len(sent), day=Day(sent[-1].time_ms)
    )


def notes(review: ScopedReview, finding: Finding) -> tuple[str, ...]:
    """The finding's notes; an edition for people has what others did, and neither who they are nor their words."""
    unnamed = {
        str(action_sentence(action)): action
        for action in review.actions.get(finding.finding_id, ())
        if not _may_name(review, action)
    }
    return tuple(_unnamed(unnamed[each]) if each in unnamed else each for each in finding.notes)


def _may_name(review: ScopedReview, action: Action) -> bool:
    """Whether the report may tell who did something: everybody to the fleet's lead, to people only themselves."""
    is_own = action.actor.kind in (PERSON, LINK) and action.actor.name in review.people
    return is_own or not review.scope.is_personal


def _unnamed(action: Action) -> Sentence:
    """When and what; not by whom, why, or to which address."""
    did = action_sentence(replace(action, reason="", channel=""))
    return tr("{label}: {value}", label=did.values["moment"], value=did.values["what"])


def gone(review: ScopedReview) -> Table:
    """What became of last week's findings, the wrong ones first."""
    own = sorted(by_cost(review.ended), key=lambda each: each.status != "reversed")
    return _apart(
        review,
        "gone",
        tr("Closed and reversed since last week"),
        own,
        column("about", tr("what became of it"), "sentence", lambda each: _became(review, each)),
        question=tr("How often were last week's findings wrong?"),
        headline=_reversals(review),
        terms=tuple(STATUSES[name] for name in ("closed", "unseen", "reversed")) if own else (),
    )


def suppressed(review: ScopedReview) -> Table:
    """What somebody has hidden, who, until when and why."""
    own = review.suppressed
    hidden = tr_many("{number} finding suppressed.", "{number} findings suppressed.", len(own))
    return _apart(
        review,
        "suppressed",
        tr("Suppressed"),
        own,
        column("about", tr("reason"), "sentence", lambda each: _hidden(review, each)),
        question=tr("What did somebody hide, until when and why?"),
        headline=hidden if own else tr("Nothing is suppressed."),
    )


def _apart(
    review: ScopedReview,
    name: str,
    title: str,
    own: Sequence[Finding],
    about: Column,
    *,
    question: str,
    headline: str,
    terms: tuple[Term, ...] = (),
) -> Table:
    """A row for each finding; `about` is the last column."""
    currency = next((each.currency for each in own if each.currency), "")
    with_cost = any(each.cost is not None for each in own)
    return Table(
        name=name,
        title=title,
        question=question,
        headline=headline,
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
            column("holder", tr("user"), "holder", whose, "holder"),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda each: Number(each.gpu_hours, 1)),
            column(
                "cost",
                tr("cost, {currency}", currency=plain(currency)),
                "money",
                lambda each: None if each.cost is None else at_most(each.unconfirmed, Number(each.cost, 2)),
                "cost",
                audience="all" if with_cost else "programs",
            ),
            about,
        ),
        rows=tuple(own),
        shown=_LISTED,
        rest=tr_many("and {number} more finding", "and {number} more findings", len(own) - _LISTED),
        wide=True,
        terms=terms,
    )


def findings_about(found: Sequence[Finding], *, name: str, title: str, question: str) -> Table:
    """All of some findings, each in one row."""
    return Table(
        name=name,
        title=title,
        question=question,
        headline=tr_many("{number} finding in this window.", "{number} findings in this window.", len(found))
        if found
        else tr("No finding in this window."),
        columns=(
            column(
                "finding", tr("finding"), "finding", lambda each: LinkedCell(each.sentence, "finding", each.finding_id)
            ),
            CONFIDENCE,
            column("holder", tr("user"), "holder", lambda each: each.holder or tr(each.without_holder), "holder"),
            _SINCE,
            *_SIZE,
        ),
        rows=tuple(found),
        wide=True,
    )


_SINCE = column("since", tr("since"), "moment", "since_ms")
_SIZE = (
    column("gpus", tr("GPUs"), "count", lambda each: len(each.gpus)),
    GPU_HOURS,
    column(
        "cost", tr("cost"), "money", lambda each: at_most(each.unconfirmed, Amount(each.cost, each.currency)), "cost"
    ),
)
CATEGORY_NAMES = {
    "reclaim": tr("take back"),
    "right_size": tr("right-size"),
    "efficiency": tr("efficiency"),
    "demand": tr("demand"),
    "coverage": tr("not observed"),
}
"""What a category is for, in two words."""
_STATUS_ORDER = tuple(STATUSES)


def all_findings(review: ScopedReview) -> Table:
    """Return every finding of the window, suppressed ones too, to sort and to filter.

    The value of a word with an order is its place in that order; the value of the confidence is how many conditions failed.
    """

    def notices(finding: Finding) -> int:
        return sum(each.kind == "notify" for each in review.actions.get(finding.finding_id, ()))

    return Table(
        name="all_findings",
        title=tr("All findings"),
        question=tr("What can be taken back, from whom, what to type, and who is on it?"),
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
            column("holder", tr("user"), "holder", user_name),
            column("team", tr("team"), "team", lambda each: plain(each.team or "")),
            column(
                "status",
                tr("status"),
                "state",
                lambda each: tr(each.status),
                lambda each: _STATUS_ORDER.index(each.status),
                json_type="integer",
            ),
            column("host", tr("host"), "host", lambda each: plain(each.host)),
            *_SIZE,
            _SINCE,
            column("notified", tr("user notified"), "count", lambda each: notified(review, each), notices),
            column(
                "next_command",
                tr("next command"),
                "words",
                lambda each: plain(each.next_command, _COMMAND_MOST) or ENDED,
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
    """Return `medium, 1 failed`: how sure a finding is, and how many of its conditions do not hold."""
    grade, failed = tr(finding.confidence.grade), len(finding.confidence.failed)
    return tr_many("{grade}, {number} failed", "{grade}, {number} failed", failed, grade=grade) if failed else grade


def whose(finding: Finding) -> str:
    """The user, with the team where it is known."""
    name = user_name(finding, NAME_MOST)
    return tr("{holder} (team {team})", holder=name, team=plain(finding.team)) if finding.team else name


def _hidden(review: ScopedReview, finding: Finding) -> str:
    """Why, by whom and until which day; a person's edition does not name others, nor quote them."""
    last = next(each for each in reversed(review.actions[finding.finding_id]) if each.kind == "suppress")
    until = None if last.expires_ms is None else Day(last.expires_ms - 1)  # an end is the first moment after
    if not _may_name(review, last):
        return tr("no end given") if until is None else tr("until {day}", day=until)
    reason = plain(last.reason, _REASON_MOST) if last.reason else tr("no reason given")
    if until is None:
        return tr("{reason} ({actor})", reason=reason, actor=last.by)
    return tr("{reason} ({actor}, until {day})", reason=reason, actor=last.by, day=until)


def _reversals(review: ScopedReview) -> str:
    """How often last week's findings were wrong; of an edition for people too it is the rate of all of them."""
    found = review.reversals
    if found is None:
        return tr("There was no week before to compare with.")
    rate = reversals_text(found)
    return tr("{rate}.", rate=rate if review.scope.is_all else tr("whole fleet, {rate}", rate=rate))


def reversals_text(found: Reversals) -> Sentence:
    """How often last week's findings were wrong, in one sentence."""
    until, unseen = Stamp(found.until_ms), found.not_judged
    if not found.n:
        none = tr("reversals: no finding up to {until} named GPUs to take back and can be judged", until=until)
        return tr("{said} ({number} not observed since)", said=none, number=unseen) if unseen else none
    low, high = found.total.interval
    judged = tr_many(
        "reversals: of {number} finding up to {until}, {wrong} ({rate}; {low} to {high} at 90 %): {grades}",
        "reversals: of {number} findings up to {until}, {wrong} ({rate}; {low} to {high} at 90 %): {grades}",
        found.n,
        until=until,
        wrong=_wrong(found),
        rate=Share(found.rate, 0),
        low=Share(low, 0),
        high=Share(high, 0),
        grades=_grades(found),
    )
    if not unseen:
        return judged
    return tr("{said}; {number} not judged, not observed since", said=judged, number=unseen)


def _wrong(found: Reversals) -> Sentence:
    return tr_many(
        "{number} was wrong within {horizon}",
        "{number} were wrong within {horizon}",
        found.total.wrong,
        horizon=Span(found.horizon_ms - found.horizon_ms % HOUR_MS),
    )


def _grades(found: Reversals) -> SentenceList:
    def shown(grade: str, rate: Rate) -> Sentence:
        wrong, judged = Number(rate.wrong), Number(rate.judged)
        return tr("{grade} {wrong} of {judged}", grade=tr(grade), wrong=wrong, judged=judged)

    return SentenceList([shown(grade, rate) for grade, rate in found.by_grade.items()], ", ")
