"""How sure a finding is: every condition on its own, and the grades that they add up to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analytics.workloads.confidence import (
    CONDITIONS,
    HISTORY_MIN_DAYS,
    Observation,
    grade,
    known_user,
    measured_enough,
    other_work,
    watched_enough,
)
from analytics.workloads.model import Outlook
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS
from tests.core import pages
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
        ({"util_coverage": 0.8999}, ["utilization was observed for 89.9 % of the time, 90 % are needed"]),
        (
            {"util_coverage": None, "sample_count": 300},
            ["point samples only: 300 samples at 0 can hide activity of up to 1.00 % of the time (95 %)"],
        ),
        (
            {"util_coverage": None, "sample_count": 1},
            ["point samples only: 1 sample at 0 can hide activity of up to 100.00 % of the time (95 %)"],
        ),
        ({"point_ratio": 0.1, "sample_count": 10}, []),
        (
            {"point_ratio": 0.25, "sample_count": 600},
            [
                (
                    "point samples for 25.0 % of the time: 600 samples at 0 can hide activity of up to 0.50 % of the"
                    " time (95 %)"
                )
            ],
        ),
        (
            {"util_coverage": None, "sample_count": 2401, "all_zero": False},
            ["point samples only: a share measured with 2,401 samples has an error of up to 2.00 % (95 %)"],
        ),
        ({"util_coverage": None, "sample_count": 0, "measured": False}, ["utilization was not measured"]),
        ({"unconfirmed_ratio": 0.1}, []),
        (
            {"unconfirmed_ratio": 0.101},
            [
                (
                    "only point samples show 10.1 % of the time as idle; neither energy nor power rules out work"
                    " between them"
                )
            ],
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
        (known_user("process", "ann"), []),
        (known_user("allocation", "ann"), []),
        (known_user("process", None), ["the user is not known"]),
        (known_user(None, None), ["the user is not known"]),
        (known_user("memory", None), ["no process list was read; memory in use counts as a user"]),
        (other_work(0), []),
    ],
)
def test_what_is_wanted_of_metrics_and_users(said: list[str], failed: list[str]) -> None:
    assert said == failed
    assert grade([], said).grade == ("medium" if failed else "high")


def fleet(site: Recording, days: float, *, gap_s: int = 0, **changes: object) -> Recording:
    """A GPU that was busy for some days, then was not watched for a while, then held for two hours."""
    end = round(days * DAY)
    last = end - 2 * HOUR - gap_s
    rows = samples("a", 0, last, every_s=300, **BUSY)
    rows += samples("a", end - 2 * HOUR, end, every_s=300, **HELD | changes)
    return fill(site, rows, processes("a", *range(end - 2 * HOUR, end, 300), every_s=300))


@pytest.mark.parametrize(
    ("days", "gap_s", "changes", "failed"),
    [
        (14, 0, {}, []),
        (4, 0, {}, ["4.0 days of history, 14 are needed"]),
        (14, 2 * DAY, {}, ["only 85.7 % of the time was observed, 90 % are needed"]),
        (14, 0, {"gpu_util_coverage_ratio": 0.5}, ["utilization was observed for 50.0 % of the time, 90 % are needed"]),
        (
            14,
            0,
            {"gpu_util_coverage_ratio": None},
            [
                "point samples only: 24 samples at 0 can hide activity of up to 12.50 % of the time (95 %)",
                (
                    "only point samples show 100.0 % of the time as idle; neither energy nor power rules out work"
                    " between them"
                ),
            ],
        ),
    ],
)
def test_through_the_rule_one_condition_at_a_time(
    monkeypatch: pytest.MonkeyPatch, days: float, gap_s: int, changes: dict[str, object], failed: list[str]
) -> None:
    promised = Outlook(0.97, 2 * HOUR, WEEK_MS, 0.99)
    monkeypatch.setattr("analytics.workloads.finding_parts.outlook", lambda *_: promised)
    site = Recording()
    fleet(site, days, gap_s=gap_s, **changes)
    (found,) = [each for each in idle_findings(site) if (each.rule, each.user) == ("held", "ann")]
    assert list(found.confidence.failed) == failed
    assert found.confidence.grade == ("high", "medium", "low")[len(failed)]
    assert found.evidence.numbers.get("unconfirmed") == (1 if len(failed) > 1 else None)


def test_every_condition_is_listed_with_what_is_wanted_and_why() -> None:
    names = "coverage history metric sampling confirmation clock attribution persistence alone record"
    assert " ".join(name for name, _, _ in CONDITIONS) == names
    assert all(wanted and source for _, wanted, source in CONDITIONS)
    page = (pages.DOCS / "recommendations.md").read_text(encoding="utf-8")
    assert pages.recommendations_page(page) == page, "run `make docs`"
    assert [name for name, wanted, _ in CONDITIONS if f"| {name} | {wanted} |" not in page] == []
