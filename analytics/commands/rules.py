"""`fallow rules`: each rule with what it finds, the look-alikes that it leaves out, and its thresholds."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from analytics.commands.reference_verb import ReferenceVerb, check_name, name_argument
from analytics.commands.table_verb import LakeInputs, Tables
from analytics.language.sentences import tr
from analytics.rules import RULES
from analytics.tables.table import Table, column
from analytics.workloads.rule import HistoryNeed, Rule
from fallow.clock import format_duration


@dataclass(frozen=True)
class Threshold:
    """A number on which a rule depends, with its source."""

    rule: str
    name: str
    value: str


def rule_texts(rule: Rule) -> tuple[str, str, str]:
    """Return what the rule finds, how it groups its findings, and its look-alikes, from the docstrings of its file."""
    finds, _, look_alikes = (sys.modules[rule.find.__module__].__doc__ or "").partition("\n\n")
    finds, grouping, look_alikes = (" ".join(each.split()) for each in (finds, rule.find.__doc__ or "", look_alikes))
    return finds, grouping, look_alikes


def history_text(history: HistoryNeed) -> str:
    """Return how much has to be observed before a rule can find anything."""
    parts = [] if not history.span_ms else [format_duration(history.span_ms)]
    parts += [] if history.setting is None else [f"findings.{history.setting.removesuffix('_ms')}"]
    parts += [] if not history.gpu_hours else [f"{history.gpu_hours:g} GPU-hours of the fleet"]
    return f"at least {' and '.join(parts)}"


def _tables(_: LakeInputs, args: argparse.Namespace) -> Tables:
    rules = tuple(each for each in RULES if args.name in (None, each.name))
    yield Table(
        "rules",
        tr("Rules"),
        tr("What does fallow look for?"),
        tr("Rules: {number}. `fallow rules NAME` shows a rule with its thresholds.", number=len(rules)),
        (
            column("rule", tr("rule"), "words", "name"),
            column("category", tr("category"), "words"),
            column("waste", tr("kinds of waste"), "words", lambda rule: ", ".join(each.name for each in rule.kinds)),
            column("sentence", tr("finds GPUs that are ..."), "words"),
        ),
        rules,
    )
    yield Table(
        "details",
        tr("What the rules find"),
        "",
        "",
        (
            column("rule", tr("rule"), "words", "name"),
            column("finds", "", "sentence", lambda rule: rule_texts(rule)[0]),
            column("grouping", "", "sentence", lambda rule: rule_texts(rule)[1]),
            column("look_alikes", "", "sentence", lambda rule: rule_texts(rule)[2]),
            column("history", tr("history"), "words", lambda rule: history_text(rule.history)),
        ),
        rules,
    )
    yield Table(
        "thresholds",
        tr("Thresholds"),
        "",
        tr("A threshold is a choice; its source is in brackets."),
        (
            column("rule", tr("rule"), "words"),
            column("threshold", tr("threshold"), "words", "name"),
            column("value", "", "sentence"),
        ),
        tuple(Threshold(rule.name, *each) for rule in rules for each in rule.thresholds.items()),
    )


VERB = ReferenceVerb(
    tr("Rules"),
    _tables,
    flags=name_argument("NAME", "one rule alone"),
    check=lambda args: check_name("rule", args.name, [each.name for each in RULES]),
)
