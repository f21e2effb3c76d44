"""A finding's evidence in words: every value with its unit, as its rule says it."""

from __future__ import annotations

from analytics.language.language import SentenceList
from analytics.rules import RULES
from analytics.workloads.finding_parts import SHARED_LABELS, shown_plainly
from analytics.workloads.model import Finding

LABELS = {rule.name: {key: each for each in (*SHARED_LABELS, *rule.labels) for key in each.keys} for rule in RULES}
"""Per rule the label of each key of its evidence."""


def evidence(finding: Finding) -> SentenceList:
    """The known values in words, each where its label's first key stands; what has no label is shown by its key."""
    known = {key: value for key, value in finding.evidence.numbers.items() if value is not None}
    labels, parts = LABELS.get(finding.rule, {}), list[str]()
    while known:
        key = next(iter(known))
        if key in labels:
            together = {each: known.pop(each) for each in labels[key].keys if each in known}
            parts += labels[key].words(together, finding)
        else:
            parts.append(f"{key.replace('_', ' ')} {shown_plainly(known.pop(key))}")
    return SentenceList(parts)
