"""Findings on the page in full."""

from __future__ import annotations

from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Day, Number
from analytics.language.sentences import tr
from analytics.sections.finding_heading import label_of_wanted
from analytics.sections.findings import whose
from analytics.sections.section import Cell, FindingCard
from analytics.workloads.model import Finding

_MOST_NAMED = 8


def card_facts(card: FindingCard) -> tuple[tuple[str, Cell], ...]:
    """What stands below a finding's heading, each with its label."""
    finding = card.finding
    own = finding.reclaimable_gpus
    taken = tr("{part} of {all}", part=Number(len(own)), all=Number(len(finding.gpus))) if own else tr("none now")
    return (
        (tr("user"), whose(finding)),
        *(((tr("job"), plain(finding.job)),) if finding.job else ()),
        (label_of_wanted(finding), taken),
        (tr("first seen"), Day(finding.since_ms)),
        (tr("notified"), card.notified),
        (tr("status"), tr(finding.status)),
    )


def card_notes(card: FindingCard) -> SentenceList:
    """Sentences as they are; what people wrote on one line of 300 characters."""
    return SentenceList([note if type(note) is not str else plain(note, 300) for note in card.notes])


def taken_names(finding: Finding) -> SentenceList:
    """The first GPUs that can be taken back, and how many more there are."""
    own = finding.reclaimable_gpus
    rest = len(own) - _MOST_NAMED
    more = [tr("and {number} more", number=Number(rest))] if rest > 0 else []
    return SentenceList([*(plain(gpu, 60) for gpu in own[:_MOST_NAMED]), *more], ", ")
