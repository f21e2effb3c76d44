"""What findings add up to: GPUs counted once, and sums of each rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analytics.names import JOINER
from analytics.workloads.model import Finding


@dataclass(frozen=True)
class RuleTotals:
    """Sums over the findings of one rule.

    GPUs count once; those `to_ask` about are named with low confidence only. GPU time and cost add up: a rule's findings are about
    different work or different holders. `cost` adds up what has a price and is None where nothing has; `unpriced` findings are not in
    it. `unconfirmed_cost` of it is of time that point samples alone call idle.
    """

    rule: str
    findings: int
    gpus: int
    gpus_to_take: int
    gpus_to_ask: int
    gpu_hours: float
    cost: float | None
    currency: str | None
    unpriced: int
    unconfirmed_cost: float | None


@dataclass(frozen=True)
class FindingTotals:
    """What findings of several rules add up to: GPUs, each counted once, and each rule's own sums.

    A GPU that findings of low confidence alone name is one to ask about, not one to take.

    Findings of different rules are about the same hours of the same GPUs, and say no hours. There is no sum of GPU time or
    money over rules for that reason.
    """

    findings: int
    gpus: int
    gpus_to_take: int
    gpus_to_take_surely: int
    gpus_to_ask: int
    unpriced: int
    rules: Mapping[str, RuleTotals]


def totals(findings: Sequence[Finding]) -> FindingTotals:
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    rules = sorted(
        (_of_rule(rule, own) for rule, own in by_rule.items()),
        key=lambda each: (-each.gpus_to_take, -each.gpus_to_ask, -(each.cost or 0.0), -each.gpu_hours, each.rule),
    )
    return FindingTotals(
        findings=len(findings),
        gpus=len({gpu for finding in findings for gpu in finding.gpus}),
        gpus_to_take=len(to_take(findings)),
        gpus_to_take_surely=len(to_take(each for each in findings if each.confidence.grade == "high")),
        gpus_to_ask=len(to_ask(findings)),
        unpriced=sum(finding.cost is None for finding in findings),
        rules={each.rule: each for each in rules},
    )


def work_places(finding: Finding) -> frozenset[tuple[str, str]]:
    """Whose work on which GPU a finding is about: findings with a common one are about the same work."""
    return frozenset((name, gpu) for name in (finding.holder or "").split(JOINER) for gpu in finding.gpus)


def saving_of(finding: Finding) -> float | None:
    """What following a finding about the size of a card saves in its window, in its currency; None where it is not known."""
    value = finding.evidence.numbers.get("saving")
    return float(value) if isinstance(value, int | float) else None


def to_take(findings: Iterable[Finding]) -> frozenset[str]:
    """The GPUs that can be taken back, each once though several findings name it; low confidence is none to take on."""
    return wanted(each for each in findings if each.confidence.grade != "low")


def to_ask(findings: Sequence[Finding]) -> frozenset[str]:
    """The GPUs that only findings of low confidence want back: their users have to be asked first."""
    return wanted(findings) - to_take(findings)


def wanted(findings: Iterable[Finding]) -> frozenset[str]:
    """The GPUs to take back and those to ask about, each once though several findings name it."""
    return frozenset(gpu for finding in findings for gpu in finding.reclaimable_gpus)


def most_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings by how many GPUs can be taken back, then by cost, then by GPU time; without a price after the others."""
    return tuple(
        sorted(
            findings, key=lambda each: (-len(each.reclaimable_gpus), -(each.cost or 0.0), -each.gpu_ms, each.finding_id)
        )
    )


def _of_rule(rule: str, findings: Sequence[Finding]) -> RuleTotals:
    priced = [finding for finding in findings if finding.cost is not None]
    return RuleTotals(
        rule=rule,
        findings=len(findings),
        gpus=len({gpu for finding in findings for gpu in finding.gpus}),
        gpus_to_take=len(to_take(findings)),
        gpus_to_ask=len(to_ask(findings)),
        gpu_hours=sum(finding.gpu_hours for finding in findings),
        cost=sum(finding.cost or 0.0 for finding in priced) if priced else None,
        currency=priced[0].currency if priced else None,
        unpriced=len(findings) - len(priced),
        unconfirmed_cost=sum((finding.cost or 0.0) * finding.unconfirmed for finding in priced) if priced else None,
    )
