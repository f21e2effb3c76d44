"""The collection plan: what is due when, also where the wall clock is put back or forward."""

from __future__ import annotations

import pytest

from agent.settings import AgentSettings
from agent.supervise.schedule import Plan
from fallow.clock import DAY_MS, HOUR_MS

STEP_MS = 10_000
NOON_MS = 1_795_132_800_000 + DAY_MS // 2
SETTINGS = AgentSettings("lake", "spool", "host", "", STEP_MS, 30_000, 300_000, 60_000, 5.0)


def lanes(plan: Plan, first_ms: int, hours: int) -> dict[str, int]:
    """How often each lane was due over some hours."""
    dues = [plan.due(start_ms, start_ms + STEP_MS) for start_ms in range(first_ms, first_ms + hours * HOUR_MS, STEP_MS)]
    return {
        "processes": sum(due.list_processes for due in dues),
        "all devices": sum(due.devices == "all" for due in dues),
        "changed devices": sum(due.devices == "changed" for due in dues),
        "all errors": sum(due.errors == "all" for due in dues),
        "changed errors": sum(due.errors == "changed" for due in dues),
    }


def test_a_day_has_one_full_inventory_and_looks_for_changes_in_between() -> None:
    assert lanes(Plan(SETTINGS, NOON_MS), NOON_MS, 24) == {
        "processes": 24 * 120, "all devices": 1, "changed devices": 22, "all errors": 1, "changed errors": 286,
    }  # fmt: skip


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_clock_that_is_put_right_delays_no_lane(ahead_ms: int) -> None:
    plan = Plan(SETTINGS, NOON_MS + ahead_ms)
    plan.due(NOON_MS + ahead_ms, NOON_MS + ahead_ms + STEP_MS)
    due = plan.due(NOON_MS, NOON_MS + STEP_MS)
    assert (due.devices, due.errors) == ("all", "all")
    assert lanes(plan, NOON_MS, 2)["changed devices"] == 1
    assert lanes(plan, NOON_MS + 2 * HOUR_MS, 24)["all devices"] == 1
