"""Every rule against every situation of the suite."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.findings.scenarios.suite import KNOWN_ERRORS, RULE_NAMES, errors, findings, registered, scenarios, score
from tests.language.said import unsaid

if TYPE_CHECKING:
    from pathlib import Path

    from tests.findings.scenarios.model import Scenario

EVERY = [each for those in scenarios().values() for each in those]
TRIED = [
    each
    for place, each in enumerate(EVERY)
    if place % (3 if each.fires else 7) == 0 or "FALLOW_ALL_SCENARIOS" in os.environ
]
"""In every test run; all of them take four minutes, with FALLOW_ALL_SCENARIOS or by `python -m tests.findings.scenarios`."""
PRECISION_MIN = 0.95
SITUATIONS_MIN = 3
"""In which a rule must fire, and in which it must not though it looks as if it should."""


@pytest.mark.parametrize("scenario", TRIED, ids=lambda each: each.name)
def test_rules_say_what_is_so(scenario: Scenario, tmp_path: Path) -> None:
    found = findings(scenario, tmp_path)
    wrong = errors(scenario, (each.rule for each in found))

    known = {rule for name, rule in KNOWN_ERRORS if name == scenario.name}
    assert wrong.keys() == known, f"{wrong}; known: {sorted(known)}"
    assert unsaid(found) == [], "these stay English in other languages"


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_rule_is_precise(rule: str) -> None:
    assert rule in registered(), f"{rule} is not among analytics.rules.RULES"

    # test_rules_say_what_is_so holds the situations to their labels
    scored = score(rule, EVERY, KNOWN_ERRORS)

    assert scored.must_fire >= SITUATIONS_MIN
    assert scored.look_alikes >= SITUATIONS_MIN
    assert scored.precision is not None
    assert scored.precision >= PRECISION_MIN
    reasons = [reason for (_, wrong), reason in KNOWN_ERRORS.items() if wrong == rule]
    assert scored.recall == 1.0 or all(reasons)


def test_every_rule_is_tried() -> None:
    assert registered() <= set(RULE_NAMES)


def test_labels_agree_with_one_another() -> None:
    names = Counter(each.name for each in EVERY)
    assert [name for name, count in names.items() if count > 1] == []
    for each in EVERY:
        labels = each.fires | each.may | each.look_alike_of
        assert labels <= set(RULE_NAMES), each.name
        assert not each.look_alike_of & (each.fires | each.may), each.name
        assert not each.fires & each.may, each.name
