"""Counter epochs: what may be subtracted from what; what is due when, also where the wall clock is put; the bell."""

from __future__ import annotations

import signal
import threading
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.settings import AgentSettings
from agent.supervise.recorder import LanePlan, Thinning
from agent.supervise.sources import Epochs
from fallow.bell import Bell
from fallow.clock import DAY_MS, HOUR_MS

STEP_MS = 10_000


def row(number: int, energy_mj: int | None, health: str = "ok", **counters: int) -> dict[str, Any]:
    return {
        "gpu": "GPU-a",
        "time": number * STEP_MS,
        "interval_ms": STEP_MS,
        "health": health,
        "energy_mj": energy_mj,
        **counters,
    }


def test_counters_that_climb_are_one_epoch() -> None:
    epochs = Epochs(None, "boot")
    rows = [row(number, 1_000_000 + 700_000 * number, throttled_power_cap_ms=number) for number in range(5)]
    assert [epochs.mark([each]) for each in rows] == [[]] * 5
    assert {each["counters_since"] for each in rows} == {0}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (row(1, 500), "energy_mj went back"),
        (row(1, 10**12), "energy_mj grew by more than is possible"),
        (row(1, 2_000_000, throttled_hw_thermal_ms=10**9), "throttled_hw_thermal_ms grew by more"),
    ],
)
def test_counters_that_cannot_have_climbed_begin_a_new_epoch(second: dict[str, Any], words: str) -> None:
    epochs = Epochs(None, "boot")
    epochs.mark([row(0, 1_000_000, throttled_hw_thermal_ms=3)])
    (event,) = epochs.mark([second])
    assert words in event["detail"]
    assert second["counters_since"] == STEP_MS


@pytest.mark.parametrize("health", ["lost", "reset_required", "driver_down", "released"])
def test_a_gpu_that_was_away_begins_a_new_epoch_even_if_its_counters_have_grown(health: str) -> None:
    epochs = Epochs(None, "boot")
    epochs.mark([row(0, 1_000)])
    away = row(1, None, health)
    assert epochs.mark([away]) == []
    assert "counters_since" not in away
    back = row(2, 2_000)
    (event,) = epochs.mark([back])
    assert event["kind"] == "counters_restarted"
    assert back["counters_since"] == 2 * STEP_MS


def test_a_wedged_gpu_goes_on_counting() -> None:
    epochs = Epochs(None, "boot")
    epochs.mark([row(0, 1_000)])
    epochs.mark([row(1, None, "wedged")])
    back = row(2, 2_000)
    assert epochs.mark([back]) == []
    assert back["counters_since"] == 0


def test_a_restart_of_the_agent_is_none_of_the_machine_is_one() -> None:
    epochs = Epochs(None, "boot")
    epochs.mark([row(0, 1_000)])
    same, other = row(60, 2_000), row(60, 2_000)
    assert Epochs(epochs.as_text(), "boot").mark([same]) == []
    assert same["counters_since"] == 0
    (event,) = Epochs(epochs.as_text(), "another boot").mark([other])
    assert "the machine has rebooted" in event["detail"]
    assert other["counters_since"] == 60 * STEP_MS


@pytest.mark.parametrize(("before", "after"), [("", "boot"), ("boot", ""), ("", "")])
def test_a_boot_that_is_not_known_is_no_new_one(before: str, after: str) -> None:
    epochs = Epochs(None, before)
    epochs.mark([row(0, 1_000)])
    later = row(60, 2_000)
    again = Epochs(epochs.as_text(), after)
    assert again.mark([later]) == []
    assert later["counters_since"] == 0
    known = before or after
    assert Epochs(again.as_text(), known).mark([row(61, 3_000)]) == []


def test_a_row_that_is_read_late_may_have_counted_for_longer() -> None:
    epochs = Epochs(None, "boot")
    epochs.mark([row(0, 1_000, throttled_power_cap_ms=10_000, read_delay_ms=250)])
    assert epochs.mark([row(1, 2_000, throttled_power_cap_ms=30_500, read_delay_ms=10_750)]) == []


@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[]",
        "null",
        '{"gpus": 3}',
        '{"gpus": {"GPU-a": {"since_ms": 0}}}',
        '{"boot_id": 3, "gpus": {"GPU-a": null}}',
    ],
)
def test_a_memory_that_is_damaged_begins_anew(damaged: str) -> None:
    epochs = Epochs(damaged, "boot")
    first = row(3, 1_000)
    assert epochs.mark([first]) == []
    assert first["counters_since"] == 3 * STEP_MS
    assert Epochs(epochs.as_text(), "boot").mark([row(4, 2_000)]) == []


@given(st.lists(st.tuples(st.integers(0, 10**13), st.sampled_from(["ok", "ok", "ok", "lost"])), max_size=30))
def test_no_difference_inside_an_epoch_is_negative_or_huge(history: list[tuple[int, str]]) -> None:
    epochs = Epochs(None, "boot")
    rows = [row(number, energy if health == "ok" else None, health) for number, (energy, health) in enumerate(history)]
    for each in rows:
        epochs.mark([each])
    known = [each for each in rows if each["energy_mj"] is not None]
    for before, after in pairwise(known):
        if before["counters_since"] == after["counters_since"]:
            watts = (after["energy_mj"] - before["energy_mj"]) / (after["time"] - before["time"])
            assert 0 <= watts <= 5_002


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
        "processes": 24 * 120,
        "all devices": 1,
        "changed devices": 22,
        "errors": 287,
        "kernel": 24 * 120 - 1,
    }


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
