"""Which texts of some findings or remarks another language could not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.catalogue import catalogue
from analytics.language.language import Sentence, SentenceList
from analytics.tables.evidence_text import evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analytics.workloads.model import Finding


def unsaid(findings: Iterable[Finding], code: str = "fr") -> list[str]:
    """Texts that are plain strings, or of which some part has no translation."""
    texts = (text for each in findings for text in _texts(each))
    return sorted({part for text in texts for part in _unknown(text, code)})


def _texts(finding: Finding) -> Iterator[str]:
    yield from (finding.sentence, *finding.confidence.failed, *finding.notes, *evidence(finding).parts)


def _unknown(text: str, code: str) -> Iterator[str]:
    if isinstance(text, SentenceList):
        yield from (part for each in text.parts for part in _unknown(each, code))
    elif isinstance(text, Sentence):
        if text.template not in catalogue(code).forms:
            yield text.template
        inner = (value for value in text.values.values() if isinstance(value, Sentence | SentenceList))
        yield from (part for value in inner for part in _unknown(value, code))
    else:
        yield text
