"""A finding in words: its heading, which is the same in every format and on every page, its user, its cost and its evidence."""

from __future__ import annotations

from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Number
from analytics.language.sentences import tr
from analytics.report.parts import ScopedReview
from analytics.rules import RULES
from analytics.workloads.confidence import UNCONFIRMED_MAX
from analytics.workloads.finding_parts import SHARED_LABELS, shown_plainly
from analytics.workloads.model import Finding, gpus_on_hosts

ENDED = tr("nothing to take back: it has ended")
"""What stands in place of a command."""


def heading(finding: Finding, review: ScopedReview | None = None) -> Sentence:
    """`8 GPUs on node-07 never used since first seen`.

    A simulated finding is marked, except in a report whose GPUs are all simulated, which says so above.
    """
    what = tr("{gpus} {sentence}", gpus=gpus_on_hosts(len(finding.gpus), finding.host), sentence=finding.sentence)
    is_marked = finding.simulated and (review is None or review.simulated_gpus < review.gpus)
    return tr("{sentence} (simulated)", sentence=what) if is_marked else what


def user_name(finding: Finding, most: int = 80) -> str:
    """Return the user's name in `most` characters, or the words for a finding without a user."""
    return plain(finding.holder, most) if finding.holder else tr(finding.without_holder)


def label_of_wanted(finding: Finding) -> Sentence:
    """What the GPUs are that a finding wants back: low confidence is a reason to ask, not to take."""
    is_asked = finding.reclaimable and finding.confidence.grade == "low"
    return tr("to ask about") if is_asked else tr("to take back")


def at_most(unconfirmed: float, amount: Amount | Number) -> Sentence | Amount | Number:
    """What idle time costs, for a table's cell: at most that much where point samples alone call more than a part of it idle."""
    is_confirmed = unconfirmed <= UNCONFIRMED_MAX or amount.value is None
    return amount if is_confirmed else tr("up to {cost}", cost=amount)


def cost_of(finding: Finding) -> Sentence:
    """The same in a sentence, of a finding with a price."""
    return cost_words(finding.unconfirmed, Amount(finding.cost, plain(finding.currency or "")))


def cost_words(unconfirmed: float, amount: Amount) -> Sentence:
    """What idle time costs, in a sentence."""
    is_confirmed = unconfirmed <= UNCONFIRMED_MAX
    return tr("{cost}", cost=amount) if is_confirmed else tr("up to {cost}, not confirmed", cost=amount)


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
