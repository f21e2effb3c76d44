"""How sure a finding is: every condition on its own, and the grades that they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analytics.workloads.confidence import (
    HISTORY_MIN_DAYS,
    Observation,
    conditions,
    grade,
    known_holder,
    measured_enough,
    other_work,
    watched_enough,
)
from fallow.clock import DAY_MS, HOUR_MS
from tests.conftest import REPOSITORY
from tests.findings.conftest import BUSY, DAY, HELD, HOUR, idle_findings
from tests.ledger.rows import fill, processes, samples

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from tests.ledger.recording import Recording

WELL = Observation(coverage=1.0, history_ms=14 * DAY_MS, util_coverage=1.0, sample_count=1000)


def seen(**changes: Any) -> list[str]:
    return watched_enough(Observation(**{**WELL.__dict__, **changes}))


def test_a_well_watched_gpu_fails_nothing() -> None:
    assert seen() == []
    assert grade(seen(), known_holder("process", "ann"), other_work(0)).grade == "high"


@pytest.mark.parametrize(
    ("coverage", "failed"),
    [
        (0.9, []),
        (0.8999, ["only 89.9 % of the time was observed, 90 % are needed"]),  # never rounded up to what it missed
        (0.5, ["only 50.0 % of the time was observed, 90 % are needed"]),
        (None, ["only nothing of the time was observed, 90 % are needed"]),
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
        (14 * DAY_MS - HOUR_MS - 1, ["13.9 days of history, 14 are needed"]),
        (DAY_MS // 2, ["0.5 days of history, 14 are needed"]),
    ],
)
def test_history_is_never_shown_as_what_is_wanted_when_it_is_not(history_ms: int, failed: list[str]) -> None:
    assert HISTORY_MIN_DAYS == 14
    assert seen(history_ms=history_ms) == failed


@pytest.mark.parametrize(
    ("watched", "count", "failed"),
    [
        (0.9, 5, []),
        (0.8999, 5, ["utilization was watched 89.9 % of the time, 90 % are needed"]),
        (None, 300, ["point samples only: a duty cycle of up to 1.00 % can hide behind 300 zeros (95 %)"]),
        (None, 1, ["point samples only: a duty cycle of up to 100.00 % can hide behind 1 zero (95 %)"]),
    ],
)
def test_how_utilization_was_watched(watched: float | None, count: int, failed: list[str]) -> None:
    assert seen(util_coverage=watched, sample_count=count) == failed


def test_what_is_partly_sampled_by_points_says_for_how_much_of_the_time() -> None:
    assert seen(point_ratio=0.1, sample_count=10) == []
    assert seen(point_ratio=0.25, sample_count=600) == [
        "point samples for 25.0 % of the time: a duty cycle of up to 0.50 % can hide behind 600 zeros (95 %)"
    ]


def test_point_samples_that_are_not_all_zero_bound_a_share() -> None:
    assert seen(util_coverage=None, sample_count=2401, all_zero=False) == [
        "point samples only: a share of time measured by 2,401 samples is off by up to 2.00 % (95 %)"
    ]


def test_what_was_not_measured_is_not_called_a_sample() -> None:
    assert seen(util_coverage=None, sample_count=0, measured=False) == ["utilization was not measured"]


@pytest.mark.parametrize(
    ("known", "total", "failed"),
    [
        (90, 100, []),
        (89.99, 100, ["SM activity was measured for 89.9 % of the time, 90 % are needed"]),
        (0, 0, ["SM activity was measured for nothing of the time, 90 % are needed"]),
    ],
)
def test_a_metric_has_to_be_there(known: float, total: float, failed: list[str]) -> None:
    assert measured_enough(known, total, "SM activity") == failed


@pytest.mark.parametrize(
    ("source", "holder", "failed"),
    [
        ("process", "ann", []),
        ("claim", "ann", []),
        ("process", None, ["the user is not known"]),
        (None, None, ["the user is not known"]),
        ("memory", None, ["no process list: memory in use stands in for a user"]),
    ],
)
def test_who_holds_it(source: str | None, holder: str | None, failed: list[str]) -> None:
    assert known_holder(source, holder) == failed


def fleet(site: Recording, days: float, *, gap_s: int = 0, **changes: object) -> Recording:
    """A GPU that was busy for some days, then was not watched for a while, then held for two hours.

    Beside it six GPUs on which somebody else took six breaks of twelve hours each, so that one of two hours lasts another hour.
    """
    end = round(days * DAY)
    last = end - 2 * HOUR - gap_s
    rows = samples("a", 0, last, every_s=300, **BUSY)
    rows += samples("a", end - 2 * HOUR, end, every_s=300, **HELD | changes)
    users = processes("a", *range(end - 2 * HOUR, end, 300), every_s=300)
    for number in range(6):
        gpu, at = f"b{number}", 0
        for turn in range(6):
            begin = (turn * 13 + 1) * HOUR + number * 600
            rows += samples(gpu, at, begin, every_s=300, **BUSY)
            rows += samples(gpu, begin, begin + 12 * HOUR, every_s=300, **HELD)
            at = begin + 12 * HOUR
        rows += samples(gpu, at, end, every_s=300, **BUSY)
        users += processes(gpu, *range(0, end, 300), every_s=300, user="bob", pid=number)
    return fill(site, rows, users)


@pytest.fixture
def _an_hour_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_FINDINGS_HORIZON", "1h")


def held_by_ann(site: Recording) -> Finding:
    (found,) = [each for each in idle_findings(site) if (each.rule, each.holder) == ("held", "ann")]
    return found


@pytest.mark.usefixtures("_an_hour_is_enough")
def test_through_the_rule_all_conditions_met(site: Recording) -> None:
    found = held_by_ann(fleet(site, 14))
    assert found.confidence.failed == ()
    assert found.confidence.grade == "high"


@pytest.mark.usefixtures("_an_hour_is_enough")
@pytest.mark.parametrize(
    ("days", "gap_s", "changes", "failed"),
    [
        (4, 0, {}, "4.0 days of history, 14 are needed"),
        (14, 2 * DAY, {}, "only 85.7 % of the time was observed, 90 % are needed"),
        (14, 0, {"gpu_util_coverage_ratio": 0.5}, "utilization was watched 50.0 % of the time, 90 % are needed"),
    ],
)  # fmt: skip
def test_through_the_rule_one_condition_at_a_time(
    site: Recording, days: float, gap_s: int, changes: dict[str, object], failed: str
) -> None:
    found = held_by_ann(fleet(site, days, gap_s=gap_s, **changes))
    assert found.confidence.failed == (failed,)
    assert found.confidence.grade == "medium"


@pytest.mark.parametrize(("ratio", "failures"), [(0.1, 0), (0.101, 1)])
def test_a_tenth_may_be_unconfirmed(ratio: float, failures: int) -> None:
    seen = Observation(1.0, 14 * DAY_MS, 1.0, 0, unconfirmed_ratio=ratio)
    assert len(watched_enough(seen)) == failures


@pytest.mark.usefixtures("_an_hour_is_enough")
def test_point_samples_that_nothing_confirms_fail_two_conditions(site: Recording) -> None:
    found = held_by_ann(fleet(site, 14, gpu_util_coverage_ratio=None))
    assert found.confidence.failed == (
        "point samples only: a duty cycle of up to 12.50 % can hide behind 24 zeros (95 %)",
        "100.0 % of its time is idle by point samples alone: neither energy nor power rules out work between them",
    )
    assert found.confidence.grade == "low"
    assert found.evidence.numbers["unconfirmed"] == 1


def test_every_condition_is_listed_with_what_is_wanted_and_why() -> None:
    listed = conditions()
    assert [each.name for each in listed] == [
        "coverage", "history", "metric", "sampling", "confirmation", "clock", "attribution", "persistence", "alone",
        "record",
    ]  # fmt: skip
    assert all(each.wanted and each.source for each in listed)
    page = Path(REPOSITORY, "docs", "findings.md").read_text(encoding="utf-8")
    for each in listed:
        assert f"| {each.name} | {each.wanted} | {each.source} |" in page
