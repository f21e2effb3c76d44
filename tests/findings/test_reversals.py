"""How often last week's findings were wrong: who came back, who did not, and who was not seen since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.reversals import Rate, reversals
from analytics.decide.review import run_rules
from analytics.proportions import wilson
from analytics.tables.finding_list import RATE_COLUMNS, REVERSALS
from analytics.tables.findings import reversals_text
from analytics.tables.table import record
from analytics.workloads.context import week_before
from fallow.clock import DAY_MS
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, context_of, reviewed
from tests.ledger.rows import claim, fill, ms, processes, samples

if TYPE_CHECKING:
    from analytics.decide.reversals import Reversals
    from tests.ledger.recording import Recording

WEEK = 7 * DAY
LOW: dict[str, Any] = {"gpu_util_pct": 3.0, "process_count": 1, "gpu_util_coverage_ratio": 1.0}


def rows(gpu: str, *parts: tuple[float, float, dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for first, last, values in parts for row in samples(gpu, first, last, every_s=300, **values)]


def users(gpu: str, first_s: int, last_s: int, user: str = "ann") -> list[dict[str, Any]]:
    return processes(gpu, *range(first_s, last_s, 300), every_s=300, user=user)


def outcome(site: Recording, gpu: list[dict[str, Any]], lists: list[dict[str, Any]], **more: Any) -> Reversals:
    """Of a site of two weeks, in which another GPU was busy throughout."""
    other = rows("z", (0, 2 * WEEK, BUSY))
    fill(site, gpu + other, [*lists, *(row | {"pid": 99} for row in users("z", 0, 2 * WEEK, "zoe"))], **more)
    context = context_of(site)
    before = week_before(context)
    assert before is not None
    found = reversals(context, before, run_rules(before))
    assert found is not None
    return found


def test_a_holder_who_stays_away_makes_the_finding_right(site: Recording) -> None:
    found = outcome(site, rows("a", (0, 2 * WEEK, HELD)), users("a", 0, 2 * WEEK))
    assert (found.total, found.observed_share, found.findings) == (Rate(0, 1), pytest.approx(1.0), ())
    assert (found.until_ms, found.horizon_ms, found.n, found.rate) == (ms(WEEK), 7 * DAY_MS, 1, 0.0)


def test_point_samples_at_zero_prove_nothing_right(site: Recording) -> None:
    sampled = HELD | {"gpu_util_coverage_ratio": None}
    found = outcome(site, rows("a", (0, WEEK, HELD), (WEEK, 2 * WEEK, sampled)), users("a", 0, 2 * WEEK))
    assert (found.total, found.not_judged) == (Rate(0, 0), 1)
    assert found.observed_share == pytest.approx(0, abs=0.001)


@pytest.mark.parametrize("work", [BUSY, LOW])
def test_a_holder_who_comes_back_makes_it_wrong(site: Recording, work: dict[str, Any]) -> None:
    back = WEEK + 2 * DAY
    found = outcome(site, rows("a", (0, back, HELD), (back, 2 * WEEK, work)), users("a", 0, 2 * WEEK))
    assert found.total == Rate(1, 1)
    (wrong,) = found.findings
    assert (wrong.finding.holder, wrong.gpus, wrong.used_ms) == ("ann", ("a",), ms(back))
    grade = wrong.finding.confidence.grade
    assert found.by_grade == {each: Rate(*((1, 1) if each == grade else (0, 0))) for each in ("high", "medium", "low")}


def test_one_who_comes_back_together_with_another_came_back(site: Recording) -> None:
    back = WEEK + DAY
    both = users("a", 0, 2 * WEEK) + [row | {"pid": 7} for row in users("a", back, 2 * WEEK, "bob")]
    assert outcome(site, rows("a", (0, back, HELD), (back, 2 * WEEK, BUSY)), both).total == Rate(1, 1)


def test_what_another_does_with_the_gpu_is_no_mistake(site: Recording) -> None:
    """It was given to somebody else: that is what the finding was for."""
    left = WEEK + DAY
    lists = users("a", 0, left) + users("a", left, 2 * WEEK, "bob")
    assert outcome(site, rows("a", (0, left, HELD), (left, 2 * WEEK, BUSY)), lists).total == Rate(0, 1)


def test_where_the_holder_is_not_known_anybody_may_be_the_holder(site: Recording) -> None:
    back = WEEK + DAY
    unknown = HELD | {"process_count": None, "mem_used_bytes": 2**34}
    trace = rows("a", (0, back, unknown), (back, 2 * WEEK, BUSY | {"process_count": None, "mem_used_bytes": 2**34}))
    assert outcome(site, trace, []).total == Rate(1, 1)


def test_a_gpu_that_nobody_had_is_wrong_when_anybody_uses_it(site: Recording) -> None:
    first = WEEK + 3 * DAY
    trace = rows("a", (0, first, FREE), (first, 2 * WEEK, BUSY))
    found = outcome(site, trace, users("a", first, 2 * WEEK, "bob"))
    assert [each.finding.rule for each in found.findings] == ["never_used"]


def test_a_reserved_gpu_is_wrong_when_its_claimant_uses_it(site: Recording) -> None:
    first = WEEK + 3 * DAY
    trace = rows("a", (0, first, FREE), (first, 2 * WEEK, BUSY))
    lists = users("a", first, 2 * WEEK, "bob")
    found = outcome(site, trace, lists, claims=[claim("a", 0, None)])
    assert {each.gpus for each in found.findings} == {("a",)}


@pytest.mark.parametrize("seen_days", [0, 3, 6])
def test_a_gpu_that_was_not_observed_since_does_not_count_as_right(site: Recording, seen_days: int) -> None:
    last = WEEK + seen_days * DAY
    found = outcome(site, rows("a", (0, last, HELD)), users("a", 0, last))
    assert (found.total, found.not_judged, found.rate) == (Rate(0, 0), 1, None)
    assert found.observed_share == pytest.approx(seen_days / 7, abs=0.001)


def test_not_observed_but_seen_to_be_wrong_is_wrong(site: Recording) -> None:
    trace = rows("a", (0, WEEK + HOUR, HELD), (WEEK + HOUR, WEEK + 2 * HOUR, BUSY))
    assert outcome(site, trace, users("a", 0, WEEK + 2 * HOUR)).total == Rate(1, 1)


def test_what_was_over_at_the_time_is_not_judged(site: Recording) -> None:
    """It named no GPU that could be taken back."""
    trace = rows("a", (0, 2 * DAY, HELD), (2 * DAY, 2 * WEEK, BUSY))
    assert outcome(site, trace, users("a", 0, 2 * WEEK)).total == Rate(0, 0)


def test_findings_are_those_that_were_known_then(site: Recording) -> None:
    """At the end of the first week the spell was half an hour old: nothing to find, however long it became."""
    start = WEEK - 1800
    trace = rows("a", (0, start, BUSY), (start, 2 * WEEK, HELD))
    assert outcome(site, trace, users("a", 0, 2 * WEEK)).total == Rate(0, 0)


def test_work_that_also_ran_elsewhere_was_nothing_to_take_back_then_either(site: Recording) -> None:
    trace = rows("a", (0, 2 * WEEK, HELD)) + rows("b", (0, 2 * WEEK, BUSY))
    both = [row | {"pid": 9} for gpu in "ab" for row in users(gpu, 0, 2 * WEEK)]
    assert outcome(site, trace, both).total == Rate(0, 0)


def test_no_week_before_no_rate(site: Recording) -> None:
    fill(site, rows("a", (0, 6 * DAY, HELD)), users("a", 0, 6 * DAY))
    assert reviewed(site).reversals is None


def test_in_words_and_as_json(site: Recording) -> None:
    back = WEEK + DAY
    found = outcome(site, rows("a", (0, back, HELD), (back, 2 * WEEK, BUSY)), users("a", 0, 2 * WEEK))
    low, _ = wilson(1.0, 1)
    grade = found.findings[0].finding.confidence.grade
    grades = ", ".join(f"{each} {1 if each == grade else 0} of {1 if each == grade else 0}" for each in found.by_grade)
    assert reversals_text(found) == (
        f"reversals: of 1 finding up to 2026-11-27 00:00 UTC, 1 was wrong within 7 d (100 %; {100 * low:.0f} % to 100 % at "
        f"90 %): {grades}"
    )
    content: Any = record(REVERSALS.columns, found)
    assert (content["reversed"], content["judged"], content["rate"], content["horizon_hours"]) == (1, 1, 1.0, 168.0)
    assert content["interval_90"] == pytest.approx([low, 1.0])


def test_a_rate_of_nothing_is_unknown_not_zero() -> None:
    assert Rate(0, 0).share is None
    assert record(RATE_COLUMNS, Rate(0, 0))["interval_90"] is None
