"""A finding in words: heading, user, cost and evidence, the same in every format and on every page."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.language.sentences import Amount, Sentence, SentenceList, plain, tr, tr_many
from analytics.report.parts import ScopedReview
from analytics.rules import RULES
from analytics.tables.basis import cost_words
from analytics.workloads.finding_parts import SHARED_LABELS, shown_plainly
from analytics.workloads.model import Finding, gpus_on_hosts

ENDED = tr("nothing to reclaim: the use has ended")


def heading(finding: Finding, review: ScopedReview | None = None) -> Sentence:
    """Return the heading: `8 GPUs on node-07 never used since first observed`.

    A simulated finding has a mark, unless all GPUs of the report are simulated and its first line shows this.
    """
    what = tr("{gpus} {sentence}", gpus=gpus_on_hosts(len(finding.gpus), finding.host), sentence=finding.sentence)
    is_marked = finding.simulated and (review is None or review.simulated_gpus < review.gpus)
    return tr("{sentence} (simulated)", sentence=what) if is_marked else what


def user_name(finding: Finding, most: int = 80) -> str:
    """Return the user's name in `most` characters, or the words for a finding without a user."""
    return plain(finding.user, most) if finding.user else tr(finding.without_user)


def label_of_wanted(finding: Finding) -> Sentence:
    """Return the label of reclaimable GPUs: "reclaimable", or at low confidence "reclaimable if the user agrees"."""
    is_asked = finding.reclaimable and finding.confidence.is_low
    return tr("reclaimable if the user agrees") if is_asked else tr("reclaimable")


def more_of_low(number: int) -> Sentence:
    """Return how many findings of low confidence are not listed."""
    return tr_many("{number} {finding|findings} of low confidence {is|are} not listed", number)


def cost_of(finding: Finding) -> Sentence:
    """Return the cost of a finding with a price, in a sentence."""
    return cost_words(finding.unconfirmed, Amount(finding.cost, plain(finding.currency or "")))


LABELS = {rule.name: {key: each for each in (*SHARED_LABELS, *rule.labels) for key in each.keys} for rule in RULES}
"""Label of each evidence key, by rule."""


def evidence(finding: Finding) -> SentenceList:
    """Return the known values in words, each at the place of its label's first key.

    A value without a label is shown by its key.
    """
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


def reasons(finding: Finding) -> Iterator[str]:
    """Yield the known values, and the failed conditions."""
    yield evidence(finding)
    if finding.confidence.failed:
        yield tr("less certain because {reasons}", reasons=SentenceList(finding.confidence.failed))
