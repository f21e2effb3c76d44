"""The situations in which the rules were wrong: the counts of `fallow evaluate`, by the situation of the GPUs."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from analytics.decide.review import found_by_rules
from analytics.evaluation.evaluate import LabelIndex, judge_findings
from analytics.evaluation.labels import gpu_names, read_labels
from analytics.importers.source import InputLimits
from analytics.inventory import load_inventory
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.context import open_context
from benchmarks.judged_rows import START_MS
from benchmarks.judged_situations import SEEN_DAYS
from fallow.clock import DAY_MS, WEEK_MS, Window

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Misses = Counter[tuple[str, str, str]]
"""Counts by rule, error and situation. Errors are `wrong` (findings), `missed` (GPUs in a week) and `kept at` a
confidence (GPUs that could not be reclaimed)."""


def misses(lake: Path, config: Path, labels: Path, situations: Mapping[str, str]) -> Misses:
    """Return the wrong and the missed cases per week; `situations` is by GPU."""
    inputs = open_inputs(argparse.Namespace(lake=str(lake), since=None, until=None, config=str(config)))
    ledger = load_window_ledger(inputs)
    inventory = load_inventory(inputs.lake)
    names = gpu_names(ledger.whole.lifetimes["gpu"].unique(), inventory)
    index, found = LabelIndex(read_labels(str(labels), "UTC", names, InputLimits.of(inputs.settings))), Misses()
    for since_ms in range(START_MS, START_MS + SEEN_DAYS * DAY_MS, WEEK_MS):
        part = replace(inputs, window=Window(since_ms, since_ms + WEEK_MS))
        context = open_context(part, load_window_ledger(part, whole=ledger.whole), inventory, since_ms + WEEK_MS)
        judged = judge_findings(context, found_by_rules(context), index)
        for each in judged.verdicts:
            for situation in {situations[gpu] for gpu, right in each.found.items() if not right}:
                found[each.finding.rule, "wrong", situation] += 1
            for gpu, right in each.takeable.items():
                found[each.finding.rule, f"kept at {each.finding.confidence.grade}", situations[gpu]] += not right
        for wanted in judged.expected:
            found[wanted.rule, "missed", situations[wanted.gpu]] += wanted.found is False
    return found
