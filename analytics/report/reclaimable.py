"""How many GPUs of each pool could go: the surplus of the `standing_surplus` findings, as the report shows it."""

from __future__ import annotations

from collections.abc import Iterable

from analytics.report.figures import BackTest, SurplusInterval
from analytics.workloads.model import Finding
from analytics.workloads.surplus import Backtest, PoolSurplus
from fallow.clock import WEEK_MS


def reclaimable(findings: Iterable[Finding]) -> tuple[SurplusInterval, ...]:
    """One per pool and model with a surplus, the largest first."""
    found = [_of_pool(each.surplus, each.evidence.until_ms) for each in findings if each.surplus is not None]
    return tuple(sorted(found, key=lambda each: (-each.point, each.pool, each.model)))


def _of_pool(surplus: PoolSurplus, until_ms: int) -> SurplusInterval:
    found, tested = surplus.estimate, surplus.backtest
    low, high = found.next_week
    return SurplusInterval(
        pool=surplus.pool,
        model=surplus.model,
        gpus=found.gpus,
        low=low,
        point=found.left,
        high=high,
        blocks=dict(sorted(surplus.in_blocks.items())),
        history_days=found.days,
        back_test=None if tested is None else _back_test(tested, until_ms),
    )


def _back_test(tested: Backtest, until_ms: int) -> BackTest:
    return BackTest(until_ms - WEEK_MS, until_ms, point=tested.surplus, hours=tested.hours, short_hours=tested.exceeded)
