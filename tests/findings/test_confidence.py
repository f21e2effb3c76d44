"""How sure a finding is: every condition on its own, and the grades that they add up to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

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
from tests.ledger.recording import Recording
from tests.ledger.rows import fill, processes, samples

WELL = Observation(coverage=1.0, history_ms=14 * DAY_MS, util_coverage=1.0, sample_count=1000)


NOTHING = "only nothing of the time was observed, 90 % are needed"


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({}, []),
        ({"coverage": 0.9}, []),
        # never rounded up to what it missed
        ({"coverage": 0.8999}, ["only 89.9 % of the time was observed, 90 % are needed"]),
        ({"coverage": None}, [NOTHING]),
        ({"history_ms": 14 * DAY_MS - 20}, []),  # the clock jitter of a first row
        ({"history_ms": 14 * DAY_MS - HOUR_MS}, []),
        ({"history_ms": 14 * DAY_MS - HOUR_MS - 1}, ["13.9 days of history, 14 are needed"]),
        ({"util_coverage": 0.9, "sample_count": 5}, []),
        ({"util_coverage": 0.8999}, ["utilization was watched 89.9 % of the time, 90 % are needed"]),
        (
            {"util_coverage": None, "sample_count": 300},
            ["point samples only: a duty cycle of up to 1.00 % can hide behind 300 zeros (95 %)"],
        ),
        (
            {"util_coverage": None, "sample_count": 1},
            ["point samples only: a duty cycle of up to 100.00 % can hide behind 1 zero (95 %)"],
        ),
        ({"point_ratio": 0.1, "sample_count": 10}, []),
        (
            {"point_ratio": 0.25, "sample_count": 600},
            ["point samples for 25.0 % of the time: a duty cycle of up to 0.50 % can hide behind 600 zeros (95 %)"],
        ),
        (
            {"util_coverage": None, "sample_count": 2401, "all_zero": False},
            ["point samples only: a share of time measured by 2,401 samples is off by up to 2.00 % (95 %)"],
        ),
        ({"util_coverage": None, "sample_count": 0, "measured": False}, ["utilization was not measured"]),
        ({"unconfirmed_ratio": 0.1}, []),
        (
            {"unconfirmed_ratio": 0.101},
            ["10.1 % of its time is idle by point samples alone: neither energy nor power rules out work between them"],
        ),
    ],
)
def test_what_is_wanted_of_how_it_was_watched(changes: dict[str, Any], failed: list[str]) -> None:
    assert HISTORY_MIN_DAYS == 14
    assert watched_enough(replace(WELL, **changes)) == failed


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        (measured_enough(90, 100, "SM activity"), []),
        (measured_enough(89.99, 100, "SM"), ["SM was measured for 89.9 % of the time, 90 % are needed"]),
        (measured_enough(0, 0, "SM"), ["SM was measured for nothing of the time, 90 % are needed"]),
        (known_holder("process", "ann"), []),
        (known_holder("claim", "ann"), []),
        (known_holder("process", None), ["the user is not known"]),
        (known_holder(None, None), ["the user is not known"]),
        (known_holder("memory", None), ["no process list: memory in use stands in for a user"]),
        (other_work(0), []),
    ],
)
def test_what_is_wanted_of_metrics_and_users(said: list[str], failed: list[str]) -> None:
    assert said == failed
    assert grade([], said).grade == ("medium" if failed else "high")


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


@pytest.mark.parametrize(
    ("days", "gap_s", "changes", "failed"),
    [
        (14, 0, {}, []),
        (4, 0, {}, ["4.0 days of history, 14 are needed"]),
        (14, 2 * DAY, {}, ["only 85.7 % of the time was observed, 90 % are needed"]),
        (14, 0, {"gpu_util_coverage_ratio": 0.5}, ["utilization was watched 50.0 % of the time, 90 % are needed"]),
        (
            14,
            0,
            {"gpu_util_coverage_ratio": None},
            [
                "point samples only: a duty cycle of up to 12.50 % can hide behind 24 zeros (95 %)",
                "100.0 % of its time is idle by point samples alone: neither energy nor power rules out work between them",
            ],
        ),
    ],
)
def test_through_the_rule_one_condition_at_a_time(
    monkeypatch: pytest.MonkeyPatch, days: float, gap_s: int, changes: dict[str, object], failed: list[str]
) -> None:
    monkeypatch.setenv("FALLOW_FINDINGS_HORIZON", "1h")
    site = Recording()
    fleet(site, days, gap_s=gap_s, **changes)
    (found,) = [each for each in idle_findings(site) if (each.rule, each.holder) == ("held", "ann")]
    assert list(found.confidence.failed) == failed
    assert found.confidence.grade == ("high", "medium", "low")[len(failed)]
    assert found.evidence.numbers.get("unconfirmed") == (1 if len(failed) > 1 else None)


def test_every_condition_is_listed_with_what_is_wanted_and_why() -> None:
    listed = conditions()
    names = "coverage history metric sampling confirmation clock attribution persistence alone record"
    assert " ".join(each.name for each in listed) == names
    assert all(each.wanted and each.source for each in listed)
    page = Path(REPOSITORY, "docs", "findings.md").read_text(encoding="utf-8")
    for each in listed:
        assert f"| {each.name} | {each.wanted} | {each.source} |" in page
