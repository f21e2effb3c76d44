"""The items of nudges: one item for each recommendation and each person who can act on it.

Only `nudge_items` makes items. `decide.decisions` decides which recommendation a GPU belongs to. Mails and their links
use items only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analytics.decide.actions import Action
from analytics.decide.lifecycle import broken_release
from analytics.decide.recommendations import OPERATORS, Recommendation
from analytics.decide.savings import without_names
from analytics.language.sentences import Sentence, tr
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME
from analytics.workloads.commands import acts, monitor_command
from analytics.workloads.model import Finding, agreeing, gpus_on_hosts, of_gpus
from analytics.workloads.waste import (
    FAULTY,
    INEFFICIENT,
    OFF_PEAK,
    OVERSIZED,
    REPAIR,
    RETURN,
    RIGHT_SIZE,
    SURPLUS,
    TUNE,
)
from fallow.clock import HOUR_MS

LEFT_ALONE = ("acknowledged", "snoozed", "closed", "unseen", "reversed")
"""Statuses of findings without a nudge: a person has answered, or the waste has ended."""

LEAST_TUNED_MS = HOUR_MS
"""Least wasted GPU time of a nudge about running work: the answer takes minutes of the user's time."""


@dataclass(frozen=True)
class NudgeItem:
    """One recommendation in a nudge to one person. Each GPU is in one item.

    Attributes:
        key: the id of the leading finding, or of the recommendation without one. It is the same every day.
        about: the recommendation, narrowed to what the person may read. `gpus_now` are the GPUs of the item. Evidence
            about GPUs that several users hold together is left out. The command acts on these GPUs or inspects them.
            The reader sees only id, sentence and start of its `finding`.
        is_whole: True if the item has all GPUs of the recommendation, and so its whole waste and cost.
        user: the user who gets the nudge; None if only operators do.
        finding_ids: the findings that an answer settles.
        broken_release_ms: when the user reported GPUs as released that are still held; else None.
    """

    key: str
    about: Recommendation
    is_whole: bool
    user: str | None
    finding_ids: tuple[str, ...]
    broken_release_ms: int | None

    @property
    def gpus(self) -> tuple[str, ...]:
        return self.about.gpus_now

    @property
    def to_operators(self) -> bool:
        return self.about.owner == OPERATORS

    @property
    def action(self) -> str:
        """Return the requested action: RELEASE, RIGHT_SIZE, TUNE, REPAIR or RETURN."""
        return REPAIR if self.about.action == "repair" else self.about.kind.request

    @property
    def sentence(self) -> Sentence:
        finding, gpus = self.about.finding, len(self.gpus)
        found = agreeing(_FOUND[self.about.kind.name] if finding is None else finding.sentence, gpus)
        return tr("{gpus} {sentence}", gpus=gpus_on_hosts(gpus, self.about.host), sentence=found)

    @property
    def request(self) -> str:
        """Return the request to the reader, as a sentence."""
        about, finding = self.about, self.about.finding
        words: str
        if self.action == REPAIR:
            words = _MEND if finding is None else RULES_BY_NAME[finding.rule].advice or _MEND
        elif self.action == RETURN:
            words = _RETURN
        elif self.action == RIGHT_SIZE:
            words = _FIT if about.packing is None else _PACK
        elif self.action == TUNE and finding is not None:
            words = RULES_BY_NAME[finding.rule].advice
        elif self.to_operators:
            words = _ORPHANED if about.has_lost_user else _WHOSE
        else:
            words = _BACK
        return agreeing(words, len(self.gpus))


@dataclass(frozen=True)
class NudgeItems:
    """The items in the order of the recommendations, and the recommendations without an item, each with the reason."""

    items: tuple[NudgeItem, ...]
    left_out: tuple[tuple[Recommendation, str], ...]


@dataclass(frozen=True)
class NudgeBasis:
    """The input of `nudge_items` beside the recommendations.

    Attributes:
        actions: what people did about findings, by finding id.
        seen_until_ms: the end of the observed time in the window.
        hosts: the host of each GPU.
        users: the present user of each GPU.
    """

    actions: Mapping[str, Sequence[Action]]
    seen_until_ms: int
    hosts: Mapping[str, str]
    users: Mapping[str, str]


def nudge_items(recommendations: Sequence[Recommendation], basis: NudgeBasis) -> NudgeItems:
    """Return one item per recommendation and user of its GPUs. A GPU is in one recommendation, and so in one item."""
    items: list[NudgeItem] = []
    left_out = []
    for each in recommendations:
        if why := _reason_left_out(each):
            left_out.append((each, why))
        else:
            items.extend(_item(each, user, gpus, basis) for user, gpus in _shares(each, basis))
    return NudgeItems(tuple(items), tuple(left_out))


def _reason_left_out(one: Recommendation) -> str:
    """Return why the recommendation has no item; empty if a person can act on it now."""
    if one.status in LEFT_ALONE:
        return one.status
    if one.kind is OFF_PEAK:
        return "for planning: free hours, and no GPU to act on now"
    if not one.gpus_now:
        return (
            _KEPT
            if one.kind.request == RETURN
            else "no action now: the waste has ended, or its GPUs are in another recommendation"
        )
    if one.confidence.is_low:
        return "of low confidence"
    if one.finding is not None and RULES_BY_NAME[one.finding.rule].of_part:
        return "only with other workloads on the card: operators get a nudge where packing saves money"
    return _not_to_tune(one) if one.kind is INEFFICIENT and one.action != "repair" else ""


_KEPT = "kept: the pool may need it"


def _not_to_tune(one: Recommendation) -> str:
    """Return why a recommendation about running work has no item; empty if its user can act on it now."""
    if one.owner == OPERATORS:
        return "no user"
    if not RULES_BY_NAME[one.evidence[0].rule].advice:
        return "for planning: the user of the GPUs cannot act on it"
    return "" if one.gpu_ms >= LEAST_TUNED_MS else "the waste is less than a GPU-hour"


def _shares(one: Recommendation, basis: NudgeBasis) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """Return users with their GPUs. Several users get their own GPUs each, where the user of a GPU is known."""
    names = set((one.user or "").split(JOINER))
    if one.owner == OPERATORS or len(names) == 1:
        yield one.user, one.gpus_now
        return
    by_user: dict[str | None, list[str]] = defaultdict(list)
    for gpu in one.gpus_now:
        has = basis.users.get(gpu, "")
        by_user[has if has and set(has.split(JOINER)) <= names else one.user].append(gpu)
    yield from ((user, tuple(gpus)) for user, gpus in by_user.items())


def _item(one: Recommendation, user: str | None, gpus: tuple[str, ...], basis: NudgeBasis) -> NudgeItem:
    finding, to_operators = one.finding, one.owner == OPERATORS
    evidence = one.evidence if to_operators else _own(one)
    is_share, is_whole = gpus != one.gpus_now, set(gpus) == set(one.gpus)
    # a finding about several users together names the jobs of all of them
    of_several = not to_operators and (JOINER in (one.user or "") or (finding is not None and finding.beside_unknown))
    key = one.recommendation_id if finding is None else finding.finding_id
    about = replace(
        one,
        gpus_now=gpus,
        host=JOINER.join(sorted({basis.hosts[gpu] for gpu in gpus if gpu in basis.hosts})) or one.host,
        value=one.value if one.ranked and not is_share else None,
        confidence=without_names(one.confidence) if of_several else one.confidence,
        evidence=() if of_several else evidence,
        next_command=_look(gpus, basis.hosts) if of_several else _command(one, evidence, gpus, basis.hosts),
        simulated=one.simulated or any(each.simulated for each in evidence),
    )
    actions = () if finding is None else basis.actions.get(finding.finding_id, ())
    return NudgeItem(
        key=f"{key} {user}" if is_share else key,
        about=about,
        is_whole=is_whole,
        user=user,
        # an answer about a share would also settle GPUs of other users
        finding_ids=() if finding is None or is_share else _settled(evidence, gpus),
        broken_release_ms=None if finding is None else broken_release(finding, actions, basis.seen_until_ms),
    )


def _own(one: Recommendation) -> tuple[Finding, ...]:
    """Return the leading finding and others of the same user. A user sees no findings about other users or faults."""
    first, *others = one.evidence
    return (
        first,
        *(
            each
            for each in others
            if each.user == first.user
            and not each.beside_unknown
            and not RULES_BY_NAME[each.rule].of_machine
            and each.status not in LEFT_ALONE
        ),
    )


def _settled(evidence: Sequence[Finding], gpus: Sequence[str]) -> tuple[str, ...]:
    """Return the findings that an answer settles: the leading one, and findings about only the item's GPUs."""
    first, *others = evidence
    return (first.finding_id, *(each.finding_id for each in others if set(_wanted(each)) <= set(gpus)))


def _wanted(finding: Finding) -> tuple[str, ...]:
    return finding.reclaimable_gpus if finding.category == "reclaim" else finding.gpus


def _command(one: Recommendation, evidence: Sequence[Finding], gpus: Sequence[str], hosts: Mapping[str, str]) -> str:
    """Return a command that acts on only these GPUs, else a command that inspects them; "" if no host is known.

    The command of a finding about more GPUs may name GPUs outside the item.
    """
    for each in evidence if one.finding is not None else ():
        if acts(each.next_command) and set(_wanted(each)) <= set(gpus):
            return each.next_command
    first = one.next_command
    if first and not acts(first) and (one.owner == OPERATORS or set(gpus) == set(one.gpus)):
        return first
    return _look(gpus, hosts)


def _look(gpus: Sequence[str], hosts: Mapping[str, str]) -> str:
    """Return a command that inspects the GPUs on the first GPU's host."""
    host = hosts.get(gpus[0])
    return "" if host is None else monitor_command(host, [gpu for gpu in gpus if hosts.get(gpu) == host])


_FOUND = {
    FAULTY.name: of_gpus("down at the end of the window"),
    SURPLUS.name: of_gpus("unallocated, beyond the demand of the pool"),
    OVERSIZED.name: of_gpus("with workloads that fit on fewer cards"),
}
"""Sentences of recommendations without a finding, by waste kind."""

_BACK = of_gpus(
    "Release it, or reply with the day until which you need it.",
    "Release them, or reply with the day until which you need them.",
)
_FIT = tr(
    "Check whether a smaller card, a part of a card or a shared card is enough for this workload. If not, reply with"
    " the reason."
)
_MEND = of_gpus("Find out why it is down, and repair it.", "Find out why they are down, and repair them.")
_RETURN = of_gpus(
    "Return it to its provider, or record why it is kept.",
    "Return them to their provider, or record why they are kept.",
)
_ORPHANED = of_gpus(
    "End the processes that are left on it: their user no longer works there.",
    "End the processes that are left on them: their user no longer works there.",
)
_WHOSE = of_gpus(
    "Find the user and check whether the GPU is still needed. If not, release it.",
    "Find the users and check whether the GPUs are still needed. If not, release them.",
)
_PACK = tr("Pack these workloads on fewer cards. If that is not possible, reply with the reason.")
