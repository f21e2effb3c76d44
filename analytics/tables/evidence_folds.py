"""What stands behind each decision: its findings with their numbers, how sure they are and why not surer, and what to type."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.decide.recommendations import Recommendation, Recommendations
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Day, Number, Share, Span
from analytics.language.sentences import tr, tr_many
from analytics.report.parts import ScopedReview
from analytics.tables.finding_heading import evidence, heading
from analytics.tables.findings import notes, notified, whose
from analytics.tables.recommendations import decision
from analytics.tables.table import Cell, Fold, Table
from analytics.workloads.model import Finding

_IN_FULL = 24
"""So many decisions have all that their findings say: a page stays below 100 kB."""
_FINDINGS = 2
"""So many findings of one decision are told, the first with its numbers; the others are weaker and only named."""
_NAMED, _NAMED_UNRANKED = 6, 2


def evidence_folds(found: Recommendations, review: ScopedReview) -> Table | None:
    """A fold for each decision, those that are ranked first; None where there is none."""
    if not found.listed:
        return None
    return Table(
        name="evidence",
        title=tr("Behind each decision"),
        question=tr("What does each decision rest on, and how sure is it?"),
        headline=tr_many(
            "{number} decision and what it rests on.", "{number} decisions and what they rest on.", len(found.listed)
        ),
        folds=tuple(_folds(found, review)),
        wide=True,
    )


def _folds(recommendations: Recommendations, review: ScopedReview) -> Iterator[Fold]:
    """The finding that leads each ranked one in full, once; others by name."""
    told: set[str] = set()
    for place, each in enumerate(recommendations.listed):
        found = _evidence(each, review)
        lines: list[str] = []
        for finding in found[:_FINDINGS] if each.ranked and place < _IN_FULL else ():
            lines.append(_name(finding, review))
            if finding.finding_id not in told and finding is found[0]:
                lines += _more(finding, review)
            told.add(finding.finding_id)
        if found and found[0].finding_id not in told and review.actions.get(found[0].finding_id):
            lines += _said(found[0], review)
        rest = [finding.finding_id for finding in found if finding.finding_id not in told]
        if rest:
            lines.append(tr("findings behind it: {findings}", findings=SentenceList(rest, ", ")))
        yield Fold(
            key=each.recommendation_id,
            title=decision(each),
            facts=tuple(_facts(each)),
            lines=tuple(lines),
            command=each.next_command,
        )


def _evidence(each: Recommendation, review: ScopedReview) -> tuple[Finding, ...]:
    """Its findings; an edition for people has those alone that it may name."""
    if not review.scope.is_personal:
        return each.evidence
    own = {finding.finding_id for finding in review.findings}
    return tuple(finding for finding in each.evidence if finding.finding_id in own)


def _facts(each: Recommendation) -> Iterator[tuple[str, Cell]]:
    """What its row in the tables does not say."""
    risk, gpus = each.risk, each.gpus_now or each.gpus
    if risk.probability is not None and risk.within_ms is not None:
        said = tr("{share} within {span}", share=Share(risk.probability, 0), span=Span(risk.within_ms))
        yield tr("probability that it is used"), said
    if risk.short_hours is not None:
        yield (
            tr("short"),
            tr("{short} of {hours} h", short=risk.short_hours, hours=Number(risk.hours)),
        )
    yield tr("GPUs"), _named(gpus, _NAMED if each.ranked else _NAMED_UNRANKED)
    if each.confidence.failed and not each.evidence:
        yield tr("not sure because"), SentenceList(each.confidence.failed)


def _named(gpus: tuple[str, ...], most: int) -> SentenceList:
    rest = len(gpus) - most
    more = [tr("and {number} more", number=rest)] if rest > 0 else []
    return SentenceList([*(plain(gpu, 60) for gpu in gpus[:most]), *more], ", ")


def _name(finding: Finding, review: ScopedReview) -> Sentence:
    """No hours and no cost: those are the decision's, and other findings may be about the same time."""
    name = tr("{id}: {sentence}", id=finding.finding_id, sentence=heading(finding, review))
    told = notified(review, finding)
    details = [
        whose(finding),
        *([tr("job {name}", name=plain(finding.job, 40))] if finding.job else []),
        tr("first seen on {day}", day=Day(finding.since_ms)),
        tr("confidence: {grade}", grade=tr(finding.confidence.grade)),
        *([tr(finding.status)] if finding.status != "standing" else []),
        *([tr("notified: {when}", when=told)] if told != tr("never") else []),
    ]
    return tr("{what} ({details})", what=name, details=SentenceList(details, ", "))


def _more(finding: Finding, review: ScopedReview) -> Iterator[str]:
    """Its numbers, why it is not surer, and what was said of it."""
    yield evidence(finding)
    if finding.confidence.failed:
        yield tr("not sure because {reasons}", reasons=SentenceList(finding.confidence.failed))
    yield from _said(finding, review)


def _said(finding: Finding, review: ScopedReview) -> Iterator[str]:
    """What was said and done about it; of a suppressed one section `suppressed` says it."""
    own = notes(review, finding) if finding.status != "suppressed" else ()
    if own:
        yield tr(
            "notes: {notes}", notes=SentenceList([plain(note, 300) if type(note) is str else note for note in own])
        )
