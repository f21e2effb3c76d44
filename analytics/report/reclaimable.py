"""How many GPUs of each pool could go: the numbers of the `standing_surplus` findings, as the report shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.report.figures import BackTest, Reclaimable
from analytics.rules.standing_surplus import BLOCKS, STANDING_SURPLUS
from fallow.clock import WEEK_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.workloads.model import Evidence, Finding


def reclaimable(findings: Iterable[Finding]) -> tuple[Reclaimable, ...]:
    """One per pool and model with a surplus, the largest first."""
    found = [_of(each.evidence) for each in findings if each.rule == STANDING_SURPLUS.name]
    return tuple(sorted(found, key=lambda each: (-each.point, each.pool, each.model)))


def _of(evidence: Evidence) -> Reclaimable:
    numbers = evidence.numbers
    return Reclaimable(
        pool=str(numbers["pool"]),
        model=str(numbers["model"]),
        gpus=float(numbers["pool_gpus"] or 0),
        low=int(numbers["surplus_low_gpus"] or 0),
        point=int(numbers["surplus_gpus"] or 0),
        high=int(numbers["surplus_high_gpus"] or 0),
        blocks={size: int(numbers[f"surplus_gpus_in_blocks_of_{size}"] or 0) for size in sorted(BLOCKS)},
        history_days=float(numbers["history_days"] or 0),
        back_test=_back_test(evidence),
    )


def _back_test(evidence: Evidence) -> BackTest | None:
    """None where there was too little to look at."""
    hours = evidence.numbers["backtest_hours"]
    if hours is None:
        return None
    return BackTest(
        since_ms=evidence.until_ms - WEEK_MS,
        until_ms=evidence.until_ms,
        point=int(evidence.numbers["backtest_surplus_gpus"] or 0),
        hours=int(hours),
        short_hours=int(evidence.numbers["backtest_exceeded_hours"] or 0),
    )
