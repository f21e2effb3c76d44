"""Waits of simulated clusters: the hours that a planted fault costs are found again from the records and the ledger."""

from __future__ import annotations

import pytest

from analytics.plan.wait_causes import CAUSES
from tests.plan.planted_waits import Planted, planted, worst

LONG = ("a fenced block", "a wrong pool and held")
PLANTED = [
    pytest.param(each, id=each.name, marks=[pytest.mark.long] if each.name in LONG else []) for each in planted(seed=2)
]


@pytest.mark.parametrize("case", PLANTED)
def test_planted_hours_are_found(case: Planted) -> None:
    true, found = case.true_hours(), case.found_hours()
    assert sum(found.values()) == pytest.approx(sum(true.values()), abs=1e-6)
    assert worst(true, found) < 0.05
    lifted = [cause for cause, _, _ in case.lifted]
    assert all(found[cause] < 0.05 * sum(true.values()) for cause in CAUSES if cause not in (*lifted, "shortage"))
