"""Every rule against situations that people have labelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.decide.review import run_rules, waiting_rules
from analytics.rules import RULES, RULES_BY_NAME
from analytics.workloads.context import open_context
from tests.findings.scenarios.builder import T_END
from tests.findings.scenarios.suite import ENOUGH, EVERY, chosen, errors, findings, open_scenario, scenarios
from tests.language.templates import unsaid

if TYPE_CHECKING:
    from pathlib import Path

    from tests.findings.scenarios.situations import Scenario

CHOSEN = chosen()


@pytest.mark.parametrize("name", CHOSEN)
def test_a_rule_fires_where_it_must_and_not_on_its_look_alikes(name: str, tmp_path: Path) -> None:
    """Each rule by itself, over a ledger that the rules of the situation share."""
    scenario = EVERY[name]
    inputs, ledger = open_scenario(scenario, tmp_path)
    context = open_context(inputs, ledger, None, T_END)
    tried = [rule for rule in RULES if rule.name in CHOSEN[name]]
    fired = {each.rule for rule in tried for each in run_rules(context, [rule])}
    assert fired == {rule.name for rule in tried if rule.name in scenario.fires}
    assert not fired & {each.rule for each in waiting_rules(context)}, "a rule that needs more history found something"


def test_each_rule_is_tried_in_enough_situations() -> None:
    for rule in RULES_BY_NAME:
        tried = [EVERY[name] for name, rules in CHOSEN.items() if rule in rules]
        assert sum(rule in each.fires for each in tried) >= ENOUGH, rule
        assert sum(rule in each.look_alike_of for each in tried) >= ENOUGH, rule


@pytest.mark.long
@pytest.mark.parametrize("scenario", EVERY.values(), ids=EVERY)
def test_rules_say_what_is_so(scenario: Scenario, tmp_path: Path) -> None:
    """All rules, ranked and reviewed as the commands do it."""
    found = findings(scenario, tmp_path)
    assert errors(scenario, (each.rule for each in found)) == {}
    assert unsaid(found) == [], "these stay English in other languages"


def test_labels_are_rules_and_names_their_own() -> None:
    assert len(EVERY) == sum(map(len, scenarios().values()))
    for each in EVERY.values():
        assert each.fires | each.may | each.look_alike_of <= RULES_BY_NAME.keys(), each.name
        assert not each.look_alike_of & each.fires, each.name
