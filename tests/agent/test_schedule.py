"""What is due when, also where the wall clock is put back or forward; longer intervals when the disk is full; the bell."""

from __future__ import annotations

import signal
import threading

import pytest

from agent.settings import AgentSettings
from agent.supervise.control import Bell
from agent.supervise.recorder import LanePlan, Thinning
from fallow.clock import DAY_MS, HOUR_MS

STEP_MS = 10_000
NOON_MS = 1_795_132_800_000 + DAY_MS // 2
SETTINGS = AgentSettings("lake", "spool", "host", "", STEP_MS, 30_000, 300_000, 60_000, 5.0)


def lanes(plan: LanePlan, first_ms: int, hours: int) -> dict[str, int]:
    """How often each lane was due over some hours."""
    dues = [plan.due(start_ms, start_ms + STEP_MS) for start_ms in range(first_ms, first_ms + hours * HOUR_MS, STEP_MS)]
    return {
        "processes": sum(due.list_processes for due in dues),
        "all devices": sum(due.devices == "all" for due in dues),
        "changed devices": sum(due.devices == "changed" for due in dues),
        "errors": sum(due.errors for due in dues),
        "kernel": sum(due.kernel for due in dues),
    }


def test_a_day_has_one_full_inventory_and_looks_for_changes_in_between() -> None:
    assert lanes(LanePlan(SETTINGS, NOON_MS), NOON_MS, 24) == {
        "processes": 24 * 120, "all devices": 1, "changed devices": 22, "errors": 287, "kernel": 24 * 120 - 1,
    }  # fmt: skip


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_clock_that_is_put_right_delays_no_lane(ahead_ms: int) -> None:
    plan = LanePlan(SETTINGS, NOON_MS + ahead_ms)
    plan.due(NOON_MS + ahead_ms, NOON_MS + ahead_ms + STEP_MS)
    due = plan.due(NOON_MS, NOON_MS + STEP_MS)
    assert (due.devices, due.errors) == ("all", True)
    assert lanes(plan, NOON_MS, 2)["changed devices"] == 1
    assert lanes(plan, NOON_MS + 2 * HOUR_MS, 24)["all devices"] == 1


def test_thinned_intervals_follow_one_another_without_a_gap() -> None:
    thinning = Thinning(10_000)
    ends = [1_000_010_000]
    for pressure in (0, 0, 1, 1, 2, 2, 0, 0):
        thinning.adapt(pressure)
        ends.append(thinning.end_of(ends[-1]))
    assert ends[1:3] == [1_000_020_000, 1_000_030_000]
    assert ends[3] % 60_000 == 0
    assert ends[4] == ends[3] + 60_000
    assert ends[5] % 300_000 == 0
    assert ends[7] == ends[6] + 10_000


def test_thinning_says_what_it_does_once() -> None:
    thinning = Thinning(10_000)
    assert thinning.adapt(0) == []
    assert [kind for kind, _ in thinning.adapt(1)] == ["sampling_thinned"]
    assert thinning.adapt(1) == []
    assert [kind for kind, _ in thinning.adapt(0)] == ["sampling_restored"]


def test_a_bell_rung_before_during_and_from_a_signal_handler_is_heard() -> None:
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0), "it is heard once"
    ringer = threading.Timer(0.05, bell.ring)
    ringer.start()
    assert bell.wait(20)
    before = signal.signal(signal.SIGALRM, lambda *_: bell.ring())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert bell.wait(20)
    finally:
        signal.signal(signal.SIGALRM, before)
    ringer.join()
    bell.close()
