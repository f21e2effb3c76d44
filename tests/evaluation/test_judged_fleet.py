"""The judged fleet: every rule has its true cases and at least as many look-alikes, and a tiny one goes all the way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from analytics.rules import RULES
from benchmarks.judged_fleet import PAGE, judge, page, summed
from benchmarks.judged_labels import labels_of
from benchmarks.judged_rows import hosts_of
from benchmarks.judged_situations import SITUATIONS, fleet_of, half_used_gang, never_used, orphan

if TYPE_CHECKING:
    from pathlib import Path


def test_every_rule_has_true_cases_and_as_many_look_alikes() -> None:
    fleet = fleet_of(1, [(build, 1) for build, _ in SITUATIONS])
    names = [f"GPU-{number}" for number in range(len(fleet))]
    yes, no = Counter[str](), Counter[str]()
    for label in labels_of(fleet, names, hosts_of(fleet)):
        assert label.since < label.until
        yes.update(filter(None, label.rules.split("+")))
        no.update(filter(None, label.not_rules.split("+")))
    judged = {rule.name for rule in RULES} - {"standing_surplus"}
    assert set(no) == judged
    assert set(yes) == judged
    assert {rule for rule in judged if no[rule] < yes[rule]} == set()


@pytest.mark.long
def test_a_tiny_fleet_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_LEDGER_WORKERS", "1")
    found = summed([judge(1, tmp_path, ((half_used_gang, 1), (orphan, 1), (never_used, 1)))])
    right = {rule: own["precision"]["right"] for rule, own in found["rules"].items()}
    assert right["partial_use"]
    assert right["zombie_holder"]
    assert right["never_used"]
    assert found["states_agreed_ratio"] == pytest.approx(1, abs=0.01)


def test_the_page_has_the_stored_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text
