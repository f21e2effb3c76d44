"""A replay of today against what a simulated scheduler did: what it predicts, and where it says that it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.plan.replay.replay_base import scenario_outcome
from fallow.clock import HOUR_MS
from tests.plan.planted_waits import Planted, planted
from tests.plan.replays import base_of, placed_rows, simulated_base
from tests.plan.scheduler import recorded_jobs, simulate

if TYPE_CHECKING:
    from analytics.plan.replay.replayed_waits import CheckedWaits

CASES = {case.name: case for case in planted(seed=2)}
TO = 0.10
LONG = ("a wrong pool", "held without use", "a wrong pool and held")
PARAMETERS = [
    pytest.param(case, id=name, marks=[pytest.mark.long] if name in LONG else []) for name, case in CASES.items()
]


def relative_error(waits: CheckedWaits) -> float:
    """Of the median and the nineteen of twenty, without the grace that short waits have."""
    seen, then = waits.observed, waits.replayed
    pairs = ((seen.p50_ms, then.p50_ms), (seen.p95_ms, then.p95_ms))
    return max(abs((after or 0) - before) / before for before, after in pairs if before)


@pytest.mark.parametrize("case", PARAMETERS)
def test_waits_of_a_strict_queue_are_predicted(case: Planted) -> None:
    base = simulated_base(replace(case.cluster, policy="fifo"), case.tasks)
    assert base.policy.order == "fifo"
    assert base.check.has_waits
    assert relative_error(base.check.waits) < TO
    assert base.check.use.error == pytest.approx(0, abs=0.02)
    assert not base.delays


@pytest.mark.parametrize("case", PARAMETERS)
def test_waits_of_a_backfilling_queue_are_predicted(case: Planted) -> None:
    base = simulated_base(replace(case.cluster, policy="backfill"), case.tasks)
    assert base.policy.order in {"backfill", "conservative"}
    assert base.check.has_waits
    assert relative_error(base.check.waits) < TO


def held_back(delay_ms: int) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Jobs of a queue in which every start comes later than GPUs would have it."""
    case = CASES["a real shortage"]
    starts = simulate(replace(case.cluster, policy="fifo"), case.tasks)
    until = max(starts[task.name].at + task.run for task in case.tasks)
    rows = placed_rows(case.cluster, case.tasks, starts, until)
    earlier = [(pl.col(name) - delay_ms).alias(name) for name in ("submitted", "eligible")]
    return recorded_jobs(case.tasks, starts).with_columns(earlier), rows, until


def test_what_else_holds_jobs_is_learnt_from_the_first_half_and_tried_on_the_second() -> None:
    base = base_of(*held_back(6 * HOUR_MS))
    assert base.delays
    assert base.check.has_waits
    assert base.check.waits.error is not None
    assert base.check.waits.error < 0.25
    assert base_of(*held_back(60_000)).delays == {}


def test_beyond_the_stated_error_waits_are_not_told_and_the_rest_is() -> None:
    jobs, rows, until = held_back(0)
    late = (pl.col("submitted") > until // 2).fill_null(value=False)
    changed = [
        (pl.col(name) - pl.when(late).then(50 * HOUR_MS).otherwise(0)).alias(name) for name in ("submitted", "eligible")
    ]
    base = base_of(jobs.with_columns(changed), rows, until)
    assert base.check.has_use
    assert not base.check.has_waits
    outcome = scenario_outcome(base, base.policy)
    assert outcome.waits is None
    assert outcome.today.total.utilization is not None
