"""`fallow evaluate --save`: a rule that was wrong too often here is graded down, from then on and in words."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from analytics.decide.reversals import RuleRecord, load_records, save_records
from analytics.workloads.confidence import good_record
from fallow.actors import Actor
from tests.answers import rows_of
from tests.evaluation.conftest import at
from tests.findings.conftest import BUSY, DAY, HELD, only
from tests.lakes import made_lake
from tests.ledger.rows import fill, load, ms, processes, samples, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.evaluation.conftest import Evaluate


def save(
    lake: Lake, right: int, until_s: float, grade: str = "medium", rule: str = "held", *, later_ms: int = 0
) -> None:
    span = {"since_ms": ms(-86_400), "until_ms": ms(until_s), "now_ms": ms(0) + later_ms}
    save_records(lake, [RuleRecord(rule, grade, 50, 40, right)], labels_sha256="0", actor=Actor("ann"), **span)


@pytest.mark.parametrize(
    ("grade", "failures"),
    [
        ("high", {(40, 38): 0, (40, 37): 1, (40, 32): 1, (40, 31): 2, (9, 0): 0, (10, 7): 2, (0, 0): 0}),
        ("medium", {(40, 32): 0, (40, 31): 1}),
        ("low", {(40, 0): 0}),
    ],
)
def test_below_95_percent_high_is_medium_and_below_80_low(grade: str, failures: dict[tuple[int, int], int]) -> None:
    """So many failures by how many findings have a label, and how many of them were right."""
    assert {counts: len(good_record(grade, *counts)) for counts in failures} == failures


def test_the_failure_gives_the_counts() -> None:
    assert good_record("high", 40, 22) == [
        "of 40 findings of this rule with high confidence that were labelled here, 22 were right: 95 % are needed",
        "55.0 % right is also less than the 80 % that medium confidence needs",
    ]


@pytest.fixture(scope="module")
def kept_used(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A GPU that was held for 20 days: what is not known is how long such an interval lasts."""
    rows = samples("GPU-0", 0, DAY, every_s=600, **BUSY) + samples("GPU-0", DAY, 20 * DAY, every_s=600, **HELD)
    lake = fill(
        made_lake(tmp_path_factory.mktemp("used")), rows, processes("GPU-0", *range(0, 20 * DAY, 600), every_s=600)
    )
    load(lake)
    return lake


@pytest.fixture
def used(kept_used: Lake, tmp_path: Path) -> Lake:
    """A copy of that lake with its ledger."""
    return made_lake(shutil.copytree(kept_used.root, tmp_path / "used"))


def graded(lake: Lake) -> tuple[str, list[str]]:
    """The confidence of the finding, and the failures that speak of labels."""
    confidence = only(lake).confidence
    return confidence.grade, [each for each in confidence.failed if "labelled" in each]


def test_findings_of_later_windows_are_graded_and_those_of_the_judged_time_are_not(used: Lake) -> None:
    assert graded(used) == ("medium", [])
    save(used, 30, until_s=20 * DAY)  # the window's own time
    assert graded(used) == ("medium", [])
    save(used, 30, until_s=0)
    assert graded(used) == (
        "low",
        ["of 40 findings of this rule with medium confidence that were labelled here, 30 were right: 80 % are needed"],
    )


def test_the_newest_record_counts_and_others_keep_theirs(used: Lake) -> None:
    save(used, 10, until_s=0)
    save(used, 20, until_s=0, grade="high", later_ms=1)
    save(used, 25, until_s=0, rule="never_used", later_ms=1)
    save(used, 40, until_s=-3600, later_ms=2)
    assert graded(used) == ("medium", [])
    known = load_records(used, ms(1))
    right = {("held", "medium"): 40, ("held", "high"): 20, ("never_used", "medium"): 25}
    assert {of: each.right for of, each in known.items()} == right


def test_saving_is_asked_for(by_hand: Lake, evaluate: Evaluate) -> None:
    line = f"GPU-0,{at(0)},{at(4)},,true,held,,"
    assert evaluate(line).returncode == 0
    assert snapshot(by_hand, "judgement") == {}
    done = evaluate(line, flags=("--save", "--as", "ann", "--json"))
    assert done.returncode == 0
    assert rows_of(done.stdout)["evaluation"][0]["judged_findings"] == 1
    assert (
        done.stderr
        == "fallow: saved the counts of 1 rule; they set the confidence of findings in windows that end after"
        " 2026-11-20T04:00:00Z; 1 of 1 counts by rule and confidence are below 10 findings and have no effect\n"
    )
    assert load_records(by_hand, ms(5 * 3600)) == {("held", "low"): RuleRecord("held", "low", 2, 1, 1)}
    done = evaluate(f"GPU-3,{at(0)},{at(4)},free,,,,", flags=("--save", "--as", "ann"))
    assert "fallow: nothing was saved: no label matches a finding" in done.stderr
    assert len(snapshot(by_hand, "judgement")) == 1
