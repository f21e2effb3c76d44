"""How sure a finding is: every condition on its own, and the grades that they add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.findings.confidence import (
    HISTORY_MIN_DAYS,
    Observation,
    alone,
    grade,
    known_holder,
    watched_enough,
)
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.findings.conftest import BUSY, DAY, HELD, HOUR, only
from tests.ledger.rows import fill, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

WELL = Observation(coverage=1.0, history_ms=14 * DAY_MS, util_coverage=1.0, sample_count=1000)


def seen(**changes: Any) -> list[str]:
    return watched_enough(Observation(**{**WELL.__dict__, **changes}))


def test_a_well_watched_gpu_fails_nothing() -> None:
    assert seen() == []
    assert grade(seen(), known_holder("process", "ann"), lasting(2 * HOUR_MS, None), alone(0)).grade == "high"


@pytest.mark.parametrize(
    ("coverage", "failed"),
    [
        (0.9, []),
        (0.8999, ["only 89.9 % of the time was observed, 90 % are wanted"]),  # never rounded up to what it missed
        (0.5, ["only 50.0 % of the time was observed, 90 % are wanted"]),
        (None, ["only nothing of the time was observed, 90 % are wanted"]),
    ],
)
def test_coverage(coverage: float | None, failed: list[str]) -> None:
    assert seen(coverage=coverage) == failed


@pytest.mark.parametrize(
    ("history_ms", "failed"),
    [
        (14 * DAY_MS, []),
        (14 * DAY_MS - 20, []),  # the clock jitter of a first row
        (14 * DAY_MS - HOUR_MS, []),
        (14 * DAY_MS - HOUR_MS - 1, ["13.9 days of history, 14 are wanted"]),
        (DAY_MS // 2, ["0.5 days of history, 14 are wanted"]),
    ],
)
def test_history_is_never_shown_as_what_is_wanted_when_it_is_not(history_ms: int, failed: list[str]) -> None:
    assert HISTORY_MIN_DAYS == 14
    assert seen(history_ms=history_ms) == failed


@pytest.mark.parametrize(
    ("watched", "count", "failed"),
    [
        (0.9, 5, []),
        (0.8999, 5, ["utilization was watched 89.9 % of the time, 90 % are wanted"]),
        (None, 300, ["point samples only: a duty cycle of up to 1.00 % can hide behind 300 zeros (95 %)"]),
        (None, 1, ["point samples only: a duty cycle of up to 100.00 % can hide behind 1 zero (95 %)"]),
    ],
)
def test_how_utilization_was_watched(watched: float | None, count: int, failed: list[str]) -> None:
    assert seen(util_coverage=watched, sample_count=count) == failed


@pytest.mark.parametrize(
    ("source", "holder", "failed"),
    [
        ("process", "ann", []),
        ("claim", "ann", []),
        ("process", None, ["the holder is not known"]),
        (None, None, ["the holder is not known"]),
        ("memory", None, ["no process list: memory in use stands for a holder"]),
    ],
)
def test_who_holds_it(source: str | None, holder: str | None, failed: list[str]) -> None:
    assert known_holder(source, holder) == failed


@pytest.mark.parametrize(
    ("longest_ms", "failed"),
    [
        (2 * HOUR_MS, []),
        (2 * HOUR_MS - 1, ["the longest idle spell is 1h 59min, 2h are wanted"]),
        (61 * MINUTE_MS, ["the longest idle spell is 1h 1min, 2h are wanted"]),
    ],
)
def test_how_long_it_lasted(longest_ms: int, failed: list[str]) -> None:
    assert lasting(longest_ms, None) == failed


@pytest.mark.parametrize(("count", "expected"), [(0, "high"), (1, "medium"), (2, "low"), (5, "low")])
def test_the_grade_counts_the_failures(count: int, expected: str) -> None:
    assert grade(["x"] * count).grade == expected


def fleet(lake: Lake, days: float, *, gap_s: int = 0, **changes: object) -> Lake:
    """A GPU that was busy for some days, then was not watched for a while, then held for two hours."""
    end = round(days * DAY)
    busy = samples("a", 0, end - 2 * HOUR - gap_s, every_s=300, **BUSY)
    held = samples("a", end - 2 * HOUR, end, every_s=300, **HELD | changes)
    return fill(lake, busy + held, processes("a", *range(end - 2 * HOUR, end, 60), every_s=60))


def test_through_the_rule_all_conditions_met(lake: Lake) -> None:
    assert only(fleet(lake, 14)).confidence.grade == "high"


@pytest.mark.parametrize(
    ("days", "gap_s", "changes", "failed"),
    [
        (3, 0, {}, "3.0 days of history, 14 are wanted"),
        (14, 2 * DAY, {}, "only 85.7 % of the time was observed, 90 % are wanted"),
        (14, 0, {"gpu_util_coverage_ratio": 0.5}, "utilization was watched 50.0 % of the time, 90 % are wanted"),
        (14, 0, {"gpu_util_coverage_ratio": None},
         "point samples only: a duty cycle of up to 12.50 % can hide behind 24 zeros (95 %)"),
    ],
)  # fmt: skip
def test_through_the_rule_one_condition_at_a_time(
    lake: Lake, days: float, gap_s: int, changes: dict[str, object], failed: str
) -> None:
    found = only(fleet(lake, days, gap_s=gap_s, **changes))
    assert found.confidence.failed == (failed,)
    assert found.confidence.grade == "medium"


def test_a_spell_that_still_runs_is_judged_by_itself_and_not_by_the_longest_before_it() -> None:
    assert lasting(10 * HOUR_MS, 70 * MINUTE_MS) == ["the idle spell so far is 1h 10min, 2h are wanted"]
    assert lasting(10 * HOUR_MS, 120 * MINUTE_MS) == []
