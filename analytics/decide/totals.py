"""Totals of findings: GPUs counted once, and sums by rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analytics.names import JOINER
from analytics.workloads.model import Finding


@dataclass(frozen=True)
class RuleTotals:
    """Sums over the findings of one rule.

    GPUs count once. GPU time and cost add up, because a rule's findings are about different work or different users.
    `cost` sums the findings with a price and is None without any; `unpriced` counts the others. `unconfirmed_cost` is
    the part of time that only point samples show as idle.
    """

    rule: str
    findings: int
    gpus: int
    gpus_to_take: int
    gpu_hours: float
    cost: float | None
    currency: str | None
    unpriced: int
    unconfirmed_cost: float | None


@dataclass(frozen=True)
class FindingTotals:
    """Totals of findings of several rules: GPUs counted once, and the sums of each rule.

    Findings of low confidence are in no sum; `low_findings` counts them.

    Findings of different rules share hours of the same GPUs. So there is no sum of GPU time or money over rules.
    """

    findings: int
    gpus: int
    gpus_to_take: int
    gpus_to_take_surely: int
    unpriced: int
    low_findings: int
    rules: Mapping[str, RuleTotals]


def totals(findings: Sequence[Finding]) -> FindingTotals:
    sure = [finding for finding in findings if not finding.confidence.is_low]
    by_rule: dict[str, list[Finding]] = {}
    for finding in sure:
        by_rule.setdefault(finding.rule, []).append(finding)
    rules = sorted(
        (_of_rule(rule, own) for rule, own in by_rule.items()),
        key=lambda each: (-each.gpus_to_take, -(each.cost or 0.0), -each.gpu_hours, each.rule),
    )
    return FindingTotals(
        findings=len(sure),
        gpus=len({gpu for finding in sure for gpu in finding.gpus}),
        gpus_to_take=len(to_take(sure)),
        gpus_to_take_surely=len(to_take(each for each in sure if each.confidence.grade == "high")),
        unpriced=sum(finding.cost is None for finding in sure),
        low_findings=len(findings) - len(sure),
        rules={each.rule: each for each in rules},
    )


def work_places(finding: Finding) -> frozenset[tuple[str, str]]:
    """Return the pairs of user and GPU of a finding: findings with a common pair are about the same work."""
    return frozenset((name, gpu) for name in (finding.user or "").split(JOINER) for gpu in finding.gpus)


def saving_of(finding: Finding) -> float | None:
    """Return the saving of a finding about card size in its window, in its currency; None if it is not known."""
    value = finding.evidence.numbers.get("saving")
    return float(value) if isinstance(value, int | float) else None


def to_take(findings: Iterable[Finding]) -> frozenset[str]:
    """Return the reclaimable GPUs of findings of at least medium confidence, each GPU once."""
    return frozenset(gpu for each in findings if not each.confidence.is_low for gpu in each.reclaimable_gpus)


def most_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings by number of reclaimable GPUs, then cost, then GPU time.

    Findings without a price come last.
    """
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
        gpu_hours=sum(finding.gpu_hours for finding in findings),
        cost=sum(finding.cost or 0.0 for finding in priced) if priced else None,
        currency=priced[0].currency if priced else None,
        unpriced=len(findings) - len(priced),
        unconfirmed_cost=sum((finding.cost or 0.0) * finding.unconfirmed for finding in priced) if priced else None,
    )
