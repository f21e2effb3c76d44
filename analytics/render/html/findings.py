"""Findings on the page in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.language import Listed
from analytics.language.plain_text import plain
from analytics.language.quantities import Day, Number
from analytics.language.sentences import say
from analytics.sections.findings import whose

if TYPE_CHECKING:
    from analytics.sections.section import Card, Cell
    from analytics.workloads.model import Finding

_MOST_NAMED = 8


def card_facts(card: Card) -> tuple[tuple[str, Cell], ...]:
    """What stands below a finding's heading, each with its label."""
    finding = card.finding
    own = finding.reclaimable_gpus
    taken = say("{part} of {all}", part=Number(len(own)), all=Number(len(finding.gpus))) if own else say("none now")
    return (
        (say("user"), whose(finding)),
        *(((say("job"), plain(finding.job)),) if finding.job else ()),
        (say("to take back"), taken),
        (say("first seen"), Day(finding.since_ms)),
        (say("notified"), card.notified),
        (say("status"), say(finding.status)),
    )


def card_notes(card: Card) -> Listed:
    """Sentences as they are; what people wrote on one line of 300 characters."""
    return Listed([note if type(note) is not str else plain(note, 300) for note in card.notes])


def taken_names(finding: Finding) -> Listed:
    """The first GPUs that can be taken back, and how many more there are."""
    own = finding.reclaimable_gpus
    rest = len(own) - _MOST_NAMED
    more = [say("and {number} more", number=Number(rest))] if rest > 0 else []
    return Listed([*(plain(gpu, 60) for gpu in own[:_MOST_NAMED]), *more], ", ")
