"""Every rule says what it is, where its thresholds are from, and stands in the docs."""

from __future__ import annotations

import json
import re
import sys

import pytest

from analytics.rules import RULES
from analytics.tables.evidence_text import LABELS
from analytics.workloads.model import CATEGORIES, Rule
from tests.core import pages
from tests.golden.outputs import FIELD, kept

EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def test_the_page_of_rules_is_that_of_the_code() -> None:
    assert (pages.DOCS / "rules.md").read_text(encoding="utf-8") == pages.rules_page(), "run `make docs`"


def test_names_are_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) >= 22


@EACH
def test_a_rule_stands_in_the_file_of_its_name_and_describes_itself(rule: Rule) -> None:
    module = sys.modules[rule.find.__module__]
    assert module.__name__.rpartition(".")[2] == rule.name
    assert "Look-alikes that it leaves alone: " in (module.__doc__ or "")
    assert rule.find.__doc__
    assert rule.category in CATEGORIES
    assert rule.sentence


@EACH
def test_every_threshold_says_its_value_and_where_it_is_from(rule: Rule) -> None:
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
