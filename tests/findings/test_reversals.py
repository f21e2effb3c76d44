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
from tests.ledger.rows import allocation, device, fill, ms, processes, samples

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


UNKNOWN = {"process_count": None, "mem_used_bytes": 2**34}
SAMPLED = HELD | {"gpu_util_coverage_ratio": None}
LISTED = users("a", 0, 2 * WEEK)
BACK = WEEK + 2 * DAY


@pytest.mark.parametrize(
    ("parts", "lists", "rate", "not_judged"),
    [
        pytest.param([(0, 2 * WEEK, HELD)], LISTED, Rate(0, 1), 0, id="who stays away makes it right"),
        pytest.param(
            [(0, WEEK, HELD), (WEEK, 2 * WEEK, SAMPLED)], LISTED, Rate(0, 0), 1, id="point samples prove nothing"
        ),
        pytest.param(
            [(0, BACK, HELD), (BACK, 2 * WEEK, BUSY)], LISTED, Rate(1, 1), 0, id="who comes back makes it wrong"
        ),
        pytest.param([(0, BACK, HELD), (BACK, 2 * WEEK, LOW)], LISTED, Rate(1, 1), 0, id="who comes back for a little"),
        pytest.param(
            [(0, BACK, HELD), (BACK, 2 * WEEK, BUSY)],
            LISTED + [row | {"pid": 7} for row in users("a", BACK, 2 * WEEK, "bob")],
            Rate(1, 1),
            0,
            id="who comes back together with another",
        ),
        pytest.param(
            [(0, BACK, HELD), (BACK, 2 * WEEK, BUSY)],
            users("a", 0, BACK) + users("a", BACK, 2 * WEEK, "bob"),
            Rate(0, 1),
            0,
            id="it was given to another: that is what the finding was for",
        ),
        pytest.param(
            [(0, BACK, HELD | UNKNOWN), (BACK, 2 * WEEK, BUSY | UNKNOWN)],
            [],
            Rate(1, 1),
            0,
            id="anybody may be nobody known",
        ),
        pytest.param([(0, WEEK, HELD)], users("a", 0, WEEK), Rate(0, 0), 1, id="not observed since"),
        pytest.param(
            [(0, WEEK + 6 * DAY, HELD)], users("a", 0, WEEK + 6 * DAY), Rate(0, 0), 1, id="observed for six days"
        ),
        pytest.param(
            [(0, WEEK + HOUR, HELD), (WEEK + HOUR, WEEK + 2 * HOUR, BUSY)],
            users("a", 0, WEEK + 2 * HOUR),
            Rate(1, 1),
            0,
            id="not observed but seen to be wrong",
        ),
        pytest.param([(0, 2 * DAY, HELD), (2 * DAY, 2 * WEEK, BUSY)], LISTED, Rate(0, 0), 0, id="over at the time"),
        # half an hour old at the end of the first week: nothing to find, however long it became
        pytest.param(
            [(0, WEEK - 1800, BUSY), (WEEK - 1800, 2 * WEEK, HELD)], LISTED, Rate(0, 0), 0, id="not known then"
        ),
    ],
)
def test_what_became_of_a_held_gpu(
    site: Recording, parts: list[Any], lists: list[dict[str, Any]], rate: Rate, not_judged: int
) -> None:
    found = outcome(site, rows("a", *parts), lists)
    assert (found.total, found.not_judged, found.rate) == (rate, not_judged, rate.wrong if rate.judged else None)
    assert (found.until_ms, found.horizon_ms, found.n) == (ms(WEEK), 7 * DAY_MS, rate.judged)
    for wrong in found.findings:
        assert (wrong.gpus, wrong.used_ms) == (("a",), ms(parts[-1][0]))
        grade = wrong.finding.confidence.grade
        assert found.by_grade == {each: Rate(*(each == grade,) * 2) for each in ("high", "medium", "low")}
    observed = sum(last - max(first, WEEK) for first, last, look in parts if last > WEEK and look is not SAMPLED) / WEEK
    if rate.judged or not_judged:
        assert found.observed_share == pytest.approx(observed, abs=0.001)


@pytest.mark.parametrize("allocations", [[], [allocation("a", 0, None)]], ids=["that nobody had", "that was allocated"])
def test_a_gpu_without_a_process_is_wrong_when_it_is_used(site: Recording, allocations: list[dict[str, Any]]) -> None:
    first = WEEK + 3 * DAY
    trace = rows("a", (0, first, FREE), (first, 2 * WEEK, BUSY))
    found = outcome(site, trace, users("a", first, 2 * WEEK, "bob"), allocations=allocations)
    assert {each.gpus for each in found.findings} == {("a",)}
    assert "never_used" in {each.finding.rule for each in found.findings}


def test_work_that_also_ran_elsewhere_was_nothing_to_take_back_then_either(site: Recording) -> None:
    trace = rows("a", (0, 2 * WEEK, HELD)) + rows("b", (0, 2 * WEEK, BUSY))
    both = [row | {"pid": 9} for gpu in "ab" for row in users(gpu, 0, 2 * WEEK)]
    assert outcome(site, trace, both).total == Rate(0, 0)


def test_a_hung_job_that_is_started_again_was_found_rightly(site: Recording) -> None:
    hung = BUSY | {"gpu_util_pct": 100.0, "power_w": 120.0, "sm_active_pct": 3.0, "dram_active_pct": 0.0}
    trace = rows("a", (0, WEEK - 2 * DAY, BUSY), (WEEK - 2 * DAY, BACK, hung), (BACK, 2 * WEEK, BUSY))
    found = outcome(site, trace, LISTED, devices=[device("a", power_limit_w=700.0)])
    assert found.total == Rate(0, 0)


def test_no_week_before_no_rate(site: Recording) -> None:
    fill(site, rows("a", (0, 6 * DAY, HELD)), users("a", 0, 6 * DAY))
    assert reviewed(site).reversals is None


def test_in_words_and_as_json(site: Recording) -> None:
    back = WEEK + DAY
    found = outcome(site, rows("a", (0, back, HELD), (back, 2 * WEEK, BUSY)), users("a", 0, 2 * WEEK))
    low, _ = wilson(1.0, 1)
    grade = found.findings[0].finding.confidence.grade
    grades = ", ".join(f"{each} {1 if each == grade else 0} of {1 if each == grade else 0}" for each in found.by_grade)
    assert (
        reversals_text(found)
        == f"reversals: of 1 finding up to 2026-11-27 00:00 UTC, 1 was wrong within 7 d (100 %; {100 * low:.0f} % to"
        f" 100 % at 90 %): {grades}"
    )
    content: Any = record(REVERSALS.columns, found)
    assert (content["reversed"], content["judged"], content["rate"], content["horizon_hours"]) == (1, 1, 1.0, 168.0)
    assert content["interval_90"] == pytest.approx([low, 1.0])
    assert Rate(0, 0).share is None
    assert record(RATE_COLUMNS, Rate(0, 0))["interval_90"] is None
