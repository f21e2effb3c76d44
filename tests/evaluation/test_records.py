"""`fallow evaluate --save`: a rule that was wrong too often here is graded down, from then on and in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from analytics.decide.records import RuleRecord, load_records, save_records
from analytics.workloads.confidence import good_record
from tests.evaluation.conftest import at
from tests.findings.conftest import idle_findings
from tests.ledger.rows import ms, snapshot

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.evaluation.conftest import Evaluate


def save(lake: Lake, right: int, until_s: float, rule: str = "held", *, later_ms: int = 0) -> None:
    record = RuleRecord(rule, 50, 40, right)
    save_records(
        lake, [record], since_ms=ms(-86_400), until_ms=ms(until_s), labels_sha256="0", actor="ann", now_ms=ms(0) + later_ms
    )  # fmt: skip


@pytest.mark.parametrize(
    ("judged", "right", "failures"),
    [(40, 38, 0), (40, 37, 1), (40, 32, 1), (40, 31, 2), (9, 0, 0), (10, 9, 1), (10, 7, 2), (0, 0, 0)],
)
def test_below_95_percent_is_one_failure_and_below_80_two(judged: int, right: int, failures: int) -> None:
    assert len(good_record(judged, right)) == failures


def test_the_failure_gives_the_counts() -> None:
    assert good_record(40, 22) == [
        "of 40 findings of this rule that were labelled here, 22 were right: high confidence needs 95 %",
        "55.0 % right is also less than the 80 % that medium confidence needs",
    ]


def graded(lake: Lake) -> list[str]:
    (first, *_) = idle_findings(lake)
    return [each for each in first.confidence.failed if "right" in each]


def test_findings_of_later_windows_are_graded_and_those_of_the_judged_time_are_not(by_hand: Lake) -> None:
    assert graded(by_hand) == []
    save(by_hand, 35, until_s=4 * 3600)  # the window's own time
    assert graded(by_hand) == []
    save(by_hand, 35, until_s=0)
    assert graded(by_hand) == [
        "of 40 findings of this rule that were labelled here, 35 were right: high confidence needs 95 %"
    ]


def test_the_newest_record_of_a_rule_counts_and_other_rules_keep_theirs(by_hand: Lake) -> None:
    save(by_hand, 10, until_s=0)
    save(by_hand, 20, until_s=0, rule="never_used", later_ms=1)
    save(by_hand, 40, until_s=-3600, later_ms=2)
    assert graded(by_hand) == []
    known = load_records(by_hand, ms(1))
    assert {rule: (each.judged, each.right) for rule, each in known.items()} == {
        "held": (40, 40), "never_used": (40, 20),
    }  # fmt: skip


def test_saving_is_asked_for(by_hand: Lake, evaluate: Evaluate) -> None:
    line = f"GPU-0,{at(0)},{at(4)},,true,held,,"
    assert evaluate(line).returncode == 0
    assert snapshot(by_hand, "judgement") == {}
    done = evaluate(line, flags=("--save", "--as", "ann", "--json"))
    assert done.returncode == 0
    assert json.loads(done.stdout)["findings"]["judged"] == 1
    assert done.stderr == (
        "fallow: saved the counts of 1 rule; findings of windows that end after 2026-11-20T04:00:00Z are graded by them\n"
    )
    assert load_records(by_hand, ms(5 * 3600)) == {"held": RuleRecord("held", 2, 1, 1)}
    done = evaluate(f"GPU-3,{at(0)},{at(4)},free,,,,", flags=("--save", "--as", "ann"))
    assert "fallow: nothing was saved: no label speaks of any finding" in done.stderr
    assert len(snapshot(by_hand, "judgement")) == 1
