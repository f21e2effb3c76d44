"""What people are asked about their GPUs: one ask for each GPU, of the strongest finding that names it.

`asks_from_findings` is the one place where asks are made. Everything behind it, the mails and the links in them, knows asks
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analytics.decide.actions import Action
from analytics.decide.deadlines import Deadlines
from analytics.decide.lifecycle import broken_release
from analytics.language.language import Sentence
from analytics.language.sentences import tr
from analytics.names import JOINER
from analytics.workloads.commands import ends_work, monitor_command
from analytics.workloads.model import Confidence, Finding
from analytics.workloads.wording import agreeing, gpus_on_hosts, of_gpus

RELEASE, RIGHT_SIZE, TUNE, REPAIR = "release", "right_size", "tune", "repair"
"""What is asked: GPUs back, a card that fits, better use of the same card (all of whoever holds it), a look at a fault (of operators)."""

FAULTS = ("throttled", "blind_spot")
"""Rules about the machine itself: whoever holds such a GPU cannot do anything about it."""

_ACTIONS = {"reclaim": RELEASE, "right_size": RIGHT_SIZE, "efficiency": TUNE}
_RECLAIM = {"never_used": 0, "standing_surplus": 1, "reserved_unused": 2}
_HELD, _OVERSIZED, _FAULTY, _INEFFICIENT = 3, 4, 5, 6
_GRADES = ("high", "medium", "low")

LEFT_ALONE = ("acknowledged", "suppressed", "closed", "unseen", "reversed")


@dataclass(frozen=True)
class Ask:
    """One thing asked about some GPUs, which no other ask names.

    `key` is the same from day to day. `sentence` says what was found, `asked` what is asked. `evidence` are the findings
    behind it, the strongest first. `cost` and `gpu_ms` are those of the strongest finding; None where only a part of its GPUs
    is asked for, or where no price is known. `command` ends the work on just these GPUs or says how to ask for less; where
    `command_acts` is false it only looks at them. `broken_release_ms` is when somebody said that they were released, and they are not.
    """

    key: str
    action: str
    gpus: tuple[str, ...]
    host: str
    sentence: Sentence
    asked: str
    deadline_ms: int
    cost: float | None
    currency: str | None
    gpu_ms: float | None
    since_ms: int
    confidence: Confidence
    evidence: tuple[Finding, ...]
    command: str
    command_acts: bool
    holder: str | None
    team: str | None
    job: str | None
    simulated: bool
    broken_release_ms: int | None = None

    @property
    def finding_ids(self) -> tuple[str, ...]:
        """Those that an answer settles: the strongest, and what is about none but its GPUs. The rest is about others too."""
        first, *others = self.evidence
        settled = (each for each in others if set(_wanted(each)) <= set(self.gpus))
        return (first.finding_id, *(each.finding_id for each in settled))


@dataclass(frozen=True)
class Asks:
    """The asks in the order of the findings, and the findings of which there is none, each with the reason."""

    asks: tuple[Ask, ...]
    left_out: tuple[tuple[Finding, str], ...]


@dataclass(frozen=True)
class Basis:
    """What asks rest on beside the findings: what people did about them, when answers are due, and where each GPU is.

    `seen_until_ms` is the end of what was seen in the window.
    """

    actions: Mapping[str, Sequence[Action]]
    deadlines: Deadlines
    now_ms: int
    seen_until_ms: int
    hosts: Mapping[str, str]


def asks_from_findings(findings: Sequence[Finding], basis: Basis) -> Asks:
    """One ask for each GPU; of two findings the stronger asks, and the weaker of the same user stands under it.

    What somebody acknowledged or suppressed keeps its GPUs: nobody is asked again by a weaker finding, so `findings` are all of
    a window, suppressed ones too.
    """
    taken: dict[str, Finding] = {}
    own: dict[str, tuple[str, ...]] = {}
    reasons: dict[str, str] = {}
    for finding in sorted(findings, key=_strongest_first):
        key, wanted = finding.finding_id, _wanted(finding)
        if why := _not_to_ask(finding):
            reasons[key] = why
            continue
        # operators hear of a fault whoever is asked about its GPUs
        left = wanted if _action(finding) == REPAIR else tuple(gpu for gpu in wanted if gpu not in taken)
        if finding.status in LEFT_ALONE:
            reasons[key] = finding.status
        elif left:
            own[key] = left
        else:
            reasons[key] = f"its GPUs are asked for by {taken[wanted[0]].finding_id}"
        for gpu in left:
            taken.setdefault(gpu, finding)
    asks = tuple(_ask(each, own[each.finding_id], findings, basis) for each in findings if each.finding_id in own)
    behind = {each.finding_id for ask in asks for each in ask.evidence}
    return Asks(asks, tuple((each, reasons[each.finding_id]) for each in findings if each.finding_id not in behind))


def rank(finding: Finding) -> int:
    """Where a finding stands in the order: never used, surplus, reserved, held, oversized, faulty, inefficient."""
    if finding.rule in FAULTS:
        return _FAULTY
    if finding.category == "reclaim":
        return _RECLAIM.get(finding.rule, _HELD)
    return _OVERSIZED if finding.category == "right_size" else _INEFFICIENT


def _strongest_first(finding: Finding) -> tuple[object, ...]:
    return (
        rank(finding), not finding.reclaimable, _GRADES.index(finding.confidence.grade), -finding.gpu_ms,
        finding.finding_id,
    )  # fmt: skip


def _action(finding: Finding) -> str | None:
    """None for what is about demand, which is a matter for planning."""
    return REPAIR if finding.rule in FAULTS else _ACTIONS.get(finding.category)


def _wanted(finding: Finding) -> tuple[str, ...]:
    # of what can be taken back only what can be now: the rest is over, or bound to other work
    return finding.reclaimable_gpus if finding.category == "reclaim" else finding.gpus


def _not_to_ask(finding: Finding) -> str:
    """Why nobody can be asked about it, whatever people did; empty where somebody can."""
    action = _action(finding)
    if action is None:
        return f"{finding.category}: not for a user"
    if action != REPAIR and not finding.holder:
        return "no user"
    return "" if _wanted(finding) else "nothing to ask for now: it is over, or other work would end with it"


def _ask(finding: Finding, gpus: tuple[str, ...], findings: Iterable[Finding], basis: Basis) -> Ask:
    action = _action(finding) or TUNE
    evidence = (finding, *_under(finding, gpus, findings))
    whole = set(gpus) == set(finding.gpus)
    host = finding.host if whole else JOINER.join(sorted({basis.hosts[gpu] for gpu in gpus if gpu in basis.hosts}))
    command, acts = _command(evidence, gpus, basis.hosts)
    due_ms = basis.deadlines.release_ms if action in (RELEASE, REPAIR) else basis.deadlines.change_ms
    said = agreeing(finding.sentence, len(gpus))
    return Ask(
        key=finding.finding_id,
        action=action,
        gpus=gpus,
        host=host,
        sentence=tr("{gpus} {sentence}", gpus=gpus_on_hosts(len(gpus), host), sentence=said),
        asked=_asked(finding, action, len(gpus)),
        deadline_ms=due_ms(basis.now_ms),
        cost=finding.cost if whole else None,
        currency=finding.currency,
        gpu_ms=finding.gpu_ms if whole else None,
        since_ms=finding.since_ms,
        confidence=finding.confidence,
        evidence=evidence,
        command=command,
        command_acts=acts,
        holder=finding.holder,
        team=finding.team,
        job=finding.job,
        simulated=any(each.simulated for each in evidence),
        broken_release_ms=broken_release(finding, basis.actions.get(finding.finding_id, ()), basis.seen_until_ms),
    )


def _under(finding: Finding, gpus: tuple[str, ...], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The weaker findings of the same user about some of these GPUs: nobody reads what others did with them."""
    if _action(finding) == REPAIR:
        return ()
    return tuple(
        other
        for other in sorted(findings, key=_strongest_first)
        if other.finding_id != finding.finding_id
        and other.holder == finding.holder
        and _action(other) != REPAIR
        and not _not_to_ask(other)
        and other.status not in LEFT_ALONE
        and _strongest_first(other) > _strongest_first(finding)
        and not set(_wanted(other)).isdisjoint(gpus)
    )


_OF_ADMINISTRATORS = "nvidia-smi mig "
"""Splitting a card takes root, which whoever is asked rarely has."""


def _command(evidence: Sequence[Finding], gpus: Sequence[str], hosts: Mapping[str, str]) -> tuple[str, bool]:
    """A command that acts on these GPUs and on no others, else one that looks at them; "" where no host is known.

    A finding about more GPUs than are asked for may name just the others in its own.
    """
    first = evidence[0]
    for each in evidence:
        acts = ends_work(each.next_command) or each.next_command.startswith("#SBATCH")
        if acts and set(_wanted(each)) <= set(gpus):
            return each.next_command, True
    is_look = not ends_work(first.next_command) and not first.next_command.startswith("#SBATCH")
    if _action(first) == REPAIR or (
        is_look and set(_wanted(first)) == set(gpus) and _OF_ADMINISTRATORS not in first.next_command
    ):
        return first.next_command, False
    host = hosts.get(gpus[0])
    if host is None:
        return "", False
    return monitor_command(host, [gpu for gpu in gpus if hosts.get(gpu) == host]), False


_BACK = of_gpus(
    "Give it back, or say until when you still need it.", "Give them back, or say until when you still need them."
)
_BACK_UNSURE = of_gpus(
    "Do you still need it? If not, give it back; if so, say until when.",
    "Do you still need them? If not, give them back; if so, say until when.",
)
_FIT = tr("See whether a smaller card, a part of one or a shared one would do for this work, or say why not.")
_TUNE = of_gpus(
    "See why this work leaves so much of it unused, or say why it has to be so.",
    "See why this work leaves so much of them unused, or say why it has to be so.",
)
_COOL = tr("Find out what slows it down: cooling, power supply or a limit that was set.")
_LOOK = tr("Find out why nobody sees it: the agent, the driver or the host.")


def _asked(finding: Finding, action: str, gpus: int) -> str:
    if action == RELEASE:
        return agreeing(_BACK_UNSURE if finding.confidence.grade == "low" else _BACK, gpus)
    if action == REPAIR:
        return _LOOK if finding.category == "coverage" else _COOL
    return _FIT if action == RIGHT_SIZE else agreeing(_TUNE, gpus)
