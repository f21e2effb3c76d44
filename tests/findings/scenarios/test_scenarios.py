"""Every rule against situations that people have labelled."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from analytics.decide.review import waiting_rules
from analytics.rules import RULES
from analytics.workloads.context import open_context
from tests.findings.scenarios.grid import T_END
from tests.findings.scenarios.suite import (
    ENOUGH,
    KNOWN_ERRORS,
    RULE_NAMES,
    chosen,
    errors,
    findings,
    open_scenario,
    registered,
    scenarios,
)
from tests.language.templates import unsaid

if TYPE_CHECKING:
    from pathlib import Path

    from tests.findings.scenarios.model import Scenario

EVERY = {each.name: each for those in scenarios().values() for each in those}
CHOSEN = chosen()


@pytest.mark.parametrize("name", CHOSEN)
def test_a_rule_fires_where_it_must_and_not_on_its_look_alikes(name: str, tmp_path: Path) -> None:
    """Each rule by itself, over a ledger that the rules of the situation share."""
    scenario = EVERY[name]
    inputs, ledger = open_scenario(scenario, tmp_path)
    context = open_context(inputs, ledger, None, T_END)
    tried = [rule for rule in RULES if rule.name in CHOSEN[name]]
    fired = {rule.name for rule in tried if list(rule.find(context))}
    assert fired == {rule.name for rule in tried if rule.name in scenario.fires}
    assert not fired & {each.rule for each in waiting_rules(context)}, "a rule that needs more history found something"


def test_each_rule_is_tried_in_enough_situations() -> None:
    for rule in RULE_NAMES:
        tried = [EVERY[name] for name, rules in CHOSEN.items() if rule in rules]
        assert sum(rule in each.fires for each in tried) >= ENOUGH, rule
        assert sum(rule in each.look_alike_of for each in tried) >= ENOUGH, rule


@pytest.mark.long
@pytest.mark.parametrize("scenario", EVERY.values(), ids=EVERY)
def test_rules_say_what_is_so(scenario: Scenario, tmp_path: Path) -> None:
    """All rules, ranked and reviewed as the commands do it."""
    found = findings(scenario, tmp_path)
    wrong = errors(scenario, (each.rule for each in found))

    known = {rule for name, rule in KNOWN_ERRORS if name == scenario.name}
    assert wrong.keys() == known, f"{wrong}; known: {sorted(known)}"
    assert unsaid(found) == [], "these stay English in other languages"


def test_the_suite_knows_the_rules_of_the_product() -> None:
    assert registered() == set(RULE_NAMES)


def test_labels_agree_with_one_another() -> None:
    names = Counter(each.name for those in scenarios().values() for each in those)
    assert [name for name, count in names.items() if count > 1] == []
    for each in EVERY.values():
        labels = each.fires | each.may | each.look_alike_of
        assert labels <= set(RULE_NAMES), each.name
        assert not each.look_alike_of & (each.fires | each.may), each.name
        assert not each.fires & each.may, each.name
