"""What all rules promise: each describes itself, is in the docs, and finds the same in a lake's files and in memory."""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from analytics.decide.review import run_rules
from analytics.rules import RULES
from analytics.tables.finding_heading import LABELS
from analytics.workloads.context import open_context
from analytics.workloads.finding_parts import findings_of
from analytics.workloads.model import CATEGORIES
from tests.core import pages
from tests.findings.conftest import context_of
from tests.findings.one_rule import together as fleets_together
from tests.findings.scenarios.builder import T_END
from tests.findings.scenarios.suite import EVERY, open_scenario
from tests.golden.outputs import FIELD, kept
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.workloads.model import Context, Finding
    from analytics.workloads.rule import Rule
    from tests.findings.scenarios.situations import Scenario

EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)

ALONE = {
    "low_efficiency": "large_user_at_a_seventh",
    "ending": "project_that_ended_last_week",
    "hoarding": "team_that_never_came",
}
"""Situations of rules that compare with all others of a site, or need a list of its people."""


def test_the_page_of_rules_is_that_of_the_code() -> None:
    assert (pages.DOCS / "rules.md").read_text(encoding="utf-8") == pages.rules_page(), "run `make docs`"


@EACH
def test_a_rule_stands_in_the_file_of_its_name_and_describes_itself(rule: Rule) -> None:
    find = rule.find_in_pools or rule.find
    module = sys.modules[find.__module__]
    assert module.__name__.rpartition(".")[2] == rule.name
    assert "Look-alikes that it leaves alone: " in (module.__doc__ or "")
    assert find.__doc__
    assert rule.category in CATEGORIES
    assert rule.sentence
    assert rule.thresholds
    for name, value in rule.thresholds.items():
        assert any(char.isdigit() for char in value) or "(" in value, name


def test_every_value_of_the_evidence_has_a_label() -> None:
    """Over the kept findings of the situations from the field, and each key in one label only."""
    texts = [text for family in FIELD for text in re.split("^# .*$", kept(f"{family}.txt"), flags=re.MULTILINE)]
    findings = [each for text in texts if text.strip() for each in json.loads(text)["findings"]]
    assert len({each["rule"] for each in findings}) > 15
    missing = {(each["rule"], key) for each in findings for key in each["evidence"] if key not in LABELS[each["rule"]]}
    assert {key for _, key in missing} == {"since", "until"}
    for rule in RULES:
        keys = [key for each in rule.labels for key in each.keys]
        assert len(keys) == len(set(keys)), rule.name


def smallest(rule: Rule) -> Scenario:
    """Of the situations without a file of owners in which a rule must fire the one with the fewest days of hosts."""
    fitting = (each for each in EVERY.values() if rule.name in each.fires and not each.owners)
    return min(fitting, key=host_rows)


def host_rows(scenario: Scenario) -> int:
    fleet = scenario.fleet()
    return len(fleet.hosts) * fleet.rows


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Context, Context]:
    """What the rules are given of a site with a situation of each of them: read from a lake, and from memory.

    The names of its hosts are ones that a shell would take apart.
    """
    chosen_ones = {each.name: each for each in map(smallest, (rule for rule in RULES if rule.name not in ALONE))}
    fleets = [(number, scenario.fleet()) for number, scenario in enumerate(chosen_ones.values())]
    site = fleets_together(fleets, host="{} '{}")
    lake = site.write(made_lake(tmp_path_factory.mktemp("all-rules")))
    return context_of(lake), context_of(site)


def alone(scenario: Scenario, folder: Path) -> tuple[Context, Context]:
    """The same of a site with one situation and its settings."""
    site = scenario.fleet().recording()
    lake = site.write(made_lake(folder / "lake"))
    in_lake, in_memory = (open_context(*open_scenario(scenario, folder, each), None, T_END) for each in (lake, site))
    return in_lake, in_memory


@EACH
def test_a_rule_finds_the_same_in_a_lake_and_in_memory(
    rule: Rule, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = ALONE.get(rule.name)
    contexts = request.getfixturevalue("together") if name is None else alone(EVERY[name], tmp_path)
    in_lake, in_memory = (run_rules(context, [rule]) for context in contexts)
    assert in_lake
    assert in_memory == in_lake
    for finding in in_lake:
        is_well_formed(finding, rule, contexts[0])


def test_a_finding_rests_on_its_own_rows_only(together: tuple[Context, Context]) -> None:
    """Findings are made of the rows of all candidates of a rule at once, to the last digit as of each by itself."""
    context, _ = together
    several = 0
    for rule in RULES:
        candidates = list(rule.find(context))
        several += len(candidates) > 1
        by_themselves = [findings_of(context, rule, [each])[0] for each in candidates]
        assert findings_of(context, rule, reversed(candidates)) == by_themselves[::-1]
    assert several >= 5


def is_well_formed(finding: Finding, rule: Rule, context: Context) -> None:
    assert (finding.rule, finding.category) == (rule.name, rule.category)
    assert re.fullmatch(r"F-[0-9a-f]{10}", finding.finding_id)
    assert context.since_ms <= finding.evidence.since_ms <= finding.evidence.until_ms <= context.until_ms
    assert set(finding.evidence.numbers) <= set(LABELS[rule.name])
    assert len(set(finding.gpus)) == len(finding.gpus)
    assert set(finding.reclaimable_gpus) <= set(finding.gpus) <= set(context.inventory.devices)
    assert finding.next_command.isprintable()
    words = shlex.split(finding.next_command)
    assert words[:1] != ["ssh"] or words[1] in context.whole.segments["host"].unique()
