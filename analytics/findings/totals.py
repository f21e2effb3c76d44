"""What findings add up to, each GPU counted once though several findings name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.findings.model import Finding


@dataclass(frozen=True)
class Totals:
    """Sums over findings.

    `cost` adds up what has a price and is None where nothing has; `unpriced` findings are not in it. Where findings share
    GPUs, the one with the most GPU time counts in full and the others with the share of GPUs that only they name.
    """

    findings: int
    gpus: int
    gpus_to_take: int
    gpus_to_take_surely: int
    gpu_hours: float
    cost: float | None
    currency: str | None
    unpriced: int

    def as_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "findings": self.findings,
            "gpus": self.gpus,
            "reclaimable_gpus": self.gpus_to_take,
            "reclaimable_gpus_of_high_confidence": self.gpus_to_take_surely,
            "gpu_hours": self.gpu_hours,
            "cost": self.cost,
            "currency": self.currency,
            "findings_without_price": self.unpriced,
        }


def totals(findings: Sequence[Finding]) -> Totals:
    """The sums over these findings."""
    counted: set[str] = set()
    gpu_hours = cost = 0.0
    for finding in sorted(findings, key=lambda each: (-each.gpu_ms, each.finding_id)):
        fresh = set(finding.gpus) - counted
        share = len(fresh) / len(finding.gpus) if finding.gpus else 1.0
        gpu_hours += share * finding.gpu_hours
        cost += share * (finding.cost or 0.0)
        counted |= fresh
    priced = [finding for finding in findings if finding.cost is not None]
    sure = [finding for finding in findings if finding.confidence.grade == "high"]
    return Totals(
        findings=len(findings),
        gpus=len(counted),
        gpus_to_take=len({gpu for finding in findings for gpu in finding.reclaimable_gpus}),
        gpus_to_take_surely=len({gpu for finding in sure for gpu in finding.reclaimable_gpus}),
        gpu_hours=gpu_hours,
        cost=cost if priced else None,
        currency=priced[0].currency if priced else None,
        unpriced=len(findings) - len(priced),
    )
