"""Evidence of each recommendation: its findings with numbers, confidence, failed conditions and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analytics.decide.recommendations import Recommendation, Recommendations
from analytics.language.sentences import Day, Sentence, SentenceList, Share, Span, plain, tr, tr_many
from analytics.report.parts import ScopedReview
from analytics.tables.finding_heading import heading, reasons
from analytics.tables.findings import notes, notified, whose
from analytics.tables.recommendations import decision
from analytics.tables.table import Cell, Fold, Table
from analytics.tables.verdicts import shortfall_words
from analytics.tables.witnesses import witness_facts
from analytics.workloads.model import Finding

_IN_FULL = 24
"""Recommendations with complete evidence: the page stays below 100 kB."""
_FINDINGS = 2
"""Findings with text per recommendation, the first with its numbers.

Other findings are weaker, and only their names appear.
"""
_NAMED, _NAMED_UNRANKED = 6, 2


def evidence_folds(found: Recommendations, review: ScopedReview) -> Table | None:
    """Return a fold per recommendation of at least medium confidence, ranked ones first; None if there is none."""
    listed = tuple(each for each in found.listed if not each.confidence.is_low)
    if not listed:
        return None
    return Table(
        name="evidence",
        title=tr("Evidence of each recommendation"),
        question=tr("What is the evidence for each recommendation, and how certain is it?"),
        headline=tr_many("{number} {recommendation|recommendations} with {its|their} evidence.", len(listed)),
        folds=tuple(_folds(listed, review)),
        wide=True,
    )


def _folds(listed: Sequence[Recommendation], review: ScopedReview) -> Iterator[Fold]:
    """Yield folds. The leading finding appears once in full, other findings by name."""
    shown: set[str] = set()
    for place, each in enumerate(listed):
        found = each.evidence
        lines: list[str] = []
        for finding in found[:_FINDINGS] if each.ranked and place < _IN_FULL else ():
            lines.append(_name(finding, review))
            if finding.finding_id not in shown and finding is found[0]:
                lines += (*reasons(finding), *_notes_line(finding, review))
            shown.add(finding.finding_id)
        if found and found[0].finding_id not in shown and review.actions.get(found[0].finding_id):
            lines += _notes_line(found[0], review)
        rest = [finding.finding_id for finding in found if finding.finding_id not in shown]
        if rest:
            lines.append(tr("further findings: {findings}", findings=SentenceList(rest, ", ")))
        yield Fold(
            key=each.recommendation_id,
            title=decision(each),
            facts=(*_facts(each), *(fact for finding in found[: place < _IN_FULL] for fact in witness_facts(finding))),
            lines=tuple(lines),
            command=each.next_command,
        )


def _facts(each: Recommendation) -> Iterator[tuple[str, Cell]]:
    """Yield facts that the recommendation's table row does not have."""
    risk, gpus = each.risk, each.gpus_now or each.gpus
    if risk.probability is not None and risk.within_ms is not None:
        sentence = tr("{share} within {span}", share=Share(risk.probability, 0), span=Span(risk.within_ms))
        yield tr("probability that it is used"), sentence
    if risk.tested is not None:
        yield tr("shortfall"), shortfall_words(risk.tested)
    yield tr("GPUs"), _named(gpus, _NAMED if each.ranked else _NAMED_UNRANKED)
    if each.confidence.failed and not each.evidence:
        yield tr("less certain because"), SentenceList(each.confidence.failed)


def _named(gpus: tuple[str, ...], most: int) -> SentenceList:
    rest = len(gpus) - most
    more = [tr("and {number} more", number=rest)] if rest > 0 else []
    return SentenceList([*(plain(gpu, 60) for gpu in gpus[:most]), *more], ", ")


def _name(finding: Finding, review: ScopedReview) -> Sentence:
    """Return the finding's name without hours and cost, which the recommendation has.

    Other findings may share the finding's time.
    """
    name = tr("{id}: {sentence}", id=finding.finding_id, sentence=heading(finding, review))
    notified_on = notified(review, finding)
    details = [
        whose(finding),
        *([tr("job {name}", name=plain(finding.job, 40))] if finding.job else []),
        tr("first observed on {day}", day=Day(finding.since_ms)),
        tr("confidence: {grade}", grade=tr(finding.confidence.grade)),
        *([tr(finding.status)] if finding.status != "open" else []),
        *([tr("notified: {when}", when=notified_on)] if notified_on != tr("never") else []),
    ]
    return tr("{what} ({details})", what=name, details=SentenceList(details, ", "))


def _notes_line(finding: Finding, review: ScopedReview) -> Iterator[str]:
    """Yield what people did about the finding; nothing for a snoozed one, which the section `snoozed` shows."""
    own = notes(review, finding) if finding.status != "snoozed" else ()
    if own:
        yield tr(
            "notes: {notes}", notes=SentenceList([plain(note, 300) if type(note) is str else note for note in own])
        )
