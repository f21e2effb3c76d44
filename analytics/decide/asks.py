"""What people are asked about their GPUs: one ask for each recommendation that a person can act on.

`asks_of` is the one place where asks are made. Which recommendation a GPU belongs to is decided before (`decide.decisions`);
everything behind it, the mails and the links in them, knows asks alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analytics.decide.actions import Action
from analytics.decide.lifecycle import broken_release
from analytics.decide.recommendations import OPERATORS, Recommendation
from analytics.decide.savings import without_names
from analytics.language.language import Sentence
from analytics.language.sentences import tr
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME
from analytics.workloads.commands import acts, monitor_command
from analytics.workloads.model import Finding, agreeing, gpus_on_hosts, of_gpus
from analytics.workloads.waste import (
    FAULTY,
    INEFFICIENT,
    NEVER_USED,
    OFF_PEAK,
    OVERSIZED,
    REPAIR,
    RETURN,
    RIGHT_SIZE,
    SURPLUS,
    TUNE,
)
from fallow.clock import HOUR_MS

LEFT_ALONE = ("acknowledged", "suppressed", "closed", "unseen", "reversed")
"""Statuses of what nobody is asked about: somebody has answered for it, or it is over."""

LEAST_TUNED_MS = HOUR_MS
"""Wasted GPU time from which a user is asked to change work that runs: an answer takes minutes of theirs."""


@dataclass(frozen=True)
class Ask:
    """A recommendation as one person is asked about it; no other ask names its GPUs.

    Attributes:
        key: the same from day to day: the id of the finding that leads, or of the recommendation where none does.
        about: the recommendation, narrowed to what the person may read. Its `gpus_now` are those asked about, and it has no evidence of what several hold together. The command acts
            on these GPUs or looks at them. Of its `finding` only id, sentence and start are for the reader.
        is_whole: whether its GPUs are all of the recommendation's, whose waste and cost are then theirs.
        holder: who is asked, where it is not the operators.
        finding_ids: the findings that an answer settles.
        broken_release_ms: when a user reported the GPUs as released, although they are not.
    """

    key: str
    about: Recommendation
    is_whole: bool
    holder: str | None
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
        """What is asked: one of RELEASE, RIGHT_SIZE, TUNE, REPAIR and RETURN."""
        return REPAIR if self.about.action == "repair" else self.about.kind.asked

    @property
    def sentence(self) -> Sentence:
        """What was found."""
        finding, gpus = self.about.finding, len(self.gpus)
        found = agreeing(_SAID[self.about.kind.name] if finding is None else finding.sentence, gpus)
        return tr("{gpus} {sentence}", gpus=gpus_on_hosts(gpus, self.about.host), sentence=found)

    @property
    def asked(self) -> str:
        """What is asked, in words."""
        about, finding = self.about, self.about.finding
        is_unsure = about.confidence.grade == "low"
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
            words = _ORPHANED if about.has_lost_user and not is_unsure else _WHOSE
        else:
            words = _BACK_UNSURE if is_unsure else _BACK
        return agreeing(words, len(self.gpus))


@dataclass(frozen=True)
class Asks:
    """The asks in the order of the recommendations, and the recommendations of which there is none, each with the reason."""

    asks: tuple[Ask, ...]
    left_out: tuple[tuple[Recommendation, str], ...]


@dataclass(frozen=True)
class Basis:
    """What asks rest on beside the recommendations: what people did about their findings, and where each GPU is and who has it.

    `seen_until_ms` is the end of what was seen in the window.
    """

    actions: Mapping[str, Sequence[Action]]
    seen_until_ms: int
    hosts: Mapping[str, str]
    holders: Mapping[str, str]


def asks_of(recommendations: Sequence[Recommendation], basis: Basis) -> Asks:
    """One ask for each recommendation and each user of its GPUs; each GPU is in one recommendation, so it is in one ask."""
    asks: list[Ask] = []
    left_out = []
    for each in recommendations:
        if why := _not_to_ask(each):
            left_out.append((each, why))
        else:
            asks.extend(_ask(each, holder, gpus, basis) for holder, gpus in _shares(each, basis))
    return Asks(tuple(asks), tuple(left_out))


def _not_to_ask(one: Recommendation) -> str:
    """Why nobody is asked; empty where somebody can do something now."""
    if one.status in LEFT_ALONE:
        return one.status
    if one.kind is OFF_PEAK:
        return "for planning: free hours, and no GPU to act on now"
    if not one.gpus_now:
        is_kept = one.kind in (NEVER_USED, SURPLUS)
        return _KEPT if is_kept else "nothing to do now: it is over, or its GPUs are in another decision"
    if one.action == "ask" and (one.risk.probability or 0.0) > _LIKELY_USED:
        return "likely to be used again before long"
    if one.finding is not None and RULES_BY_NAME[one.finding.rule].of_part:
        return "only together with the work of others: operators are told where that saves something"
    return _not_to_tune(one) if one.kind is INEFFICIENT and one.action != "repair" else ""


_LIKELY_USED = 0.5
_KEPT = "kept: the pool may need it"


def _not_to_tune(one: Recommendation) -> str:
    """The same of work that runs."""
    if one.owner == OPERATORS:
        return "no user"
    if not RULES_BY_NAME[one.evidence[0].rule].advice:
        return "for planning: whoever holds the GPUs cannot do anything about it"
    return "" if one.gpu_ms >= LEAST_TUNED_MS else "less than a GPU-hour of it was wasted"


def _shares(one: Recommendation, basis: Basis) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """Whom to ask about which of its GPUs: each of several holders about their own, where it is known whose they are."""
    names = set((one.holder or "").split(JOINER))
    if one.owner == OPERATORS or len(names) == 1:
        yield one.holder, one.gpus_now
        return
    by_holder: dict[str | None, list[str]] = defaultdict(list)
    for gpu in one.gpus_now:
        has = basis.holders.get(gpu, "")
        by_holder[has if has and set(has.split(JOINER)) <= names else one.holder].append(gpu)
    yield from ((holder, tuple(gpus)) for holder, gpus in by_holder.items())


def _ask(one: Recommendation, holder: str | None, gpus: tuple[str, ...], basis: Basis) -> Ask:
    finding, to_operators = one.finding, one.owner == OPERATORS
    evidence = one.evidence if to_operators else _own(one)
    is_share, is_whole = gpus != one.gpus_now, set(gpus) == set(one.gpus)
    # what is found about several together names the jobs of all of them
    of_several = not to_operators and (JOINER in (one.holder or "") or (finding is not None and finding.beside_unknown))
    key = one.recommendation_id if finding is None else finding.finding_id
    about = replace(
        one,
        gpus_now=gpus,
        host=JOINER.join(sorted({basis.hosts[gpu] for gpu in gpus if gpu in basis.hosts})) or one.host,
        saving=one.saving if one.ranked and not is_share else None,
        confidence=without_names(one.confidence) if of_several else one.confidence,
        evidence=() if of_several else evidence,
        next_command=_look(gpus, basis.hosts) if of_several else _command(one, evidence, gpus, basis.hosts),
        simulated=one.simulated or any(each.simulated for each in evidence),
    )
    said = () if finding is None else basis.actions.get(finding.finding_id, ())
    return Ask(
        key=f"{key} {holder}" if is_share else key,
        about=about,
        is_whole=is_whole,
        holder=holder,
        # an answer about a share would settle what others hold too
        finding_ids=() if finding is None or is_share else _settled(evidence, gpus),
        broken_release_ms=None if finding is None else broken_release(finding, said, basis.seen_until_ms),
    )


def _own(one: Recommendation) -> tuple[Finding, ...]:
    """The finding that leads and others of the same holder: no user reads what others did with their GPUs, or of faults."""
    first, *others = one.evidence
    return (
        first,
        *(
            each
            for each in others
            if each.holder == first.holder
            and not each.beside_unknown
            and not RULES_BY_NAME[each.rule].of_machine
            and each.status not in LEFT_ALONE
        ),
    )


def _settled(evidence: Sequence[Finding], gpus: Sequence[str]) -> tuple[str, ...]:
    """Those that an answer settles: the one that leads, and what is about none but its GPUs."""
    first, *others = evidence
    return (first.finding_id, *(each.finding_id for each in others if set(_wanted(each)) <= set(gpus)))


def _wanted(finding: Finding) -> tuple[str, ...]:
    return finding.reclaimable_gpus if finding.category == "reclaim" else finding.gpus


def _command(one: Recommendation, evidence: Sequence[Finding], gpus: Sequence[str], hosts: Mapping[str, str]) -> str:
    """A command that acts on these GPUs and on no others, else one that looks at them; "" where no host is known.

    A finding about more GPUs than are asked for may name just the others in its own.
    """
    for each in evidence if one.finding is not None else ():
        if acts(each.next_command) and set(_wanted(each)) <= set(gpus):
            return each.next_command
    first = one.next_command
    if first and not acts(first) and (one.owner == OPERATORS or set(gpus) == set(one.gpus)):
        return first
    return _look(gpus, hosts)


def _look(gpus: Sequence[str], hosts: Mapping[str, str]) -> str:
    """A command that looks at those of them that are on the first one's host."""
    host = hosts.get(gpus[0])
    return "" if host is None else monitor_command(host, [gpu for gpu in gpus if hosts.get(gpu) == host])


_SAID = {
    FAULTY.name: of_gpus("out of order at the end of the window"),
    SURPLUS.name: of_gpus("free, and more than the pool needs"),
    OVERSIZED.name: of_gpus("with work that fits on fewer cards together"),
}
"""Of recommendations without a finding of their own."""

_BACK = of_gpus(
    "Give it back, or say until when you still need it.", "Give them back, or say until when you still need them."
)
_BACK_UNSURE = of_gpus(
    "Do you still need it? If not, give it back; if so, say until when.",
    "Do you still need them? If not, give them back; if so, say until when.",
)
_FIT = tr("See whether a smaller card, a part of one or a shared one would do for this work, or say why not.")
_MEND = of_gpus(
    "Find out why it is out of order, and repair it.", "Find out why they are out of order, and repair them."
)
_RETURN = of_gpus(
    "Give it back to whoever lends it, or say what it is kept for.",
    "Give them back to whoever lends them, or say what they are kept for.",
)
_ORPHANED = of_gpus(
    "End what is left on it: whoever started it does not work there any more.",
    "End what is left on them: whoever started it does not work there any more.",
)
_WHOSE = of_gpus(
    "Find out whose it is and whether it is still needed; if not, release it.",
    "Find out whose they are and whether they are still needed; if not, release them.",
)
_PACK = tr("Put this work on fewer cards together, or say why not.")
