"""Judges everything that fallow concludes of some windows by labels, and sums it up by rule and by confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from analytics.decide.review import found_by_rules
from analytics.evaluation.labels import STATES_MEANT, Labels
from analytics.evaluation.verdicts import LabelIndex, Proportion, Verdict, WindowVerdicts, judge_findings, promises
from analytics.intervals import SPAN_MS
from analytics.inventory import Inventory
from analytics.rules import RULES
from analytics.window import Inputs, WindowLedger, load_window_ledger
from analytics.workloads.context import open_context
from analytics.workloads.model import GRADES, HIGH_MIN, MEDIUM_MIN
from fallow.clock import Window, format_ms
from fallow.errors import UsageError


@dataclass(frozen=True)
class StateAgreement:
    """GPU time by label and by the ledger's state, in milliseconds; `total_ms` and `observed_ms` are those of the whole ledger."""

    total_ms: int
    observed_ms: int
    time_ms: Mapping[tuple[str, str], int]

    @property
    def labelled_ms(self) -> int:
        """Time of the ledger that a label names a state of, observed or not."""
        return sum(self.time_ms.values())

    @property
    def judged_ms(self) -> int:
        """That of it which was observed."""
        return sum(ms for (_, state), ms in self.time_ms.items() if state != "unknown")

    @property
    def agreed_ms(self) -> int:
        return sum(ms for (label, state), ms in self.time_ms.items() if state in STATES_MEANT[label])

    @property
    def labels(self) -> tuple[str, ...]:
        """Those that there are, in the order in which they are explained."""
        there = {label for label, _ in self.time_ms}
        return tuple(label for label in STATES_MEANT if label in there)

    def recorded(self, state: str) -> tuple[int, int]:
        """Of the labelled time that the ledger has in a state: how much a label agrees with, and all of it."""
        own = {label: ms for (label, each), ms in self.time_ms.items() if each == state}
        return sum(ms for label, ms in own.items() if state in STATES_MEANT[label]), sum(own.values())

    def labelled(self, label: str) -> tuple[int, int]:
        """Of the time with a label that was observed: how much the ledger has in a state that agrees, and all of it."""
        own = {state: ms for (each, state), ms in self.time_ms.items() if each == label and state != "unknown"}
        return sum(ms for state, ms in own.items() if state in STATES_MEANT[label]), sum(own.values())


def state_agreement(stretches: pl.DataFrame, states: pl.DataFrame) -> StateAgreement:
    """How the ledger's rows agree with labels (`gpu`, `time`, `end`, `state`), which do not overlap."""
    rows = stretches.select("gpu", "time", "end", "state")
    both = rows.join(states.rename({"state": "label"}), on="gpu", suffix="_said").with_columns(
        time=pl.max_horizontal("time", "time_said"), end=pl.min_horizontal("end", "end_said")
    )
    found = both.filter(SPAN_MS > 0).group_by("label", "state").agg(ms=SPAN_MS.sum())
    total, unknown = rows.select(total=SPAN_MS.sum(), unknown=SPAN_MS.filter(pl.col("state") == "unknown").sum()).row(0)
    return StateAgreement(total, total - unknown, {(label, state): ms for label, state, ms in found.iter_rows()})


_EDGES = (0.0, 0.2, 0.4, 0.6, MEDIUM_MIN, 0.9, HIGH_MIN, 1.0)
"""Probabilities at which promises are told apart."""


@dataclass(frozen=True)
class RuleGrade:
    """A rule's findings of one confidence, and which of those that labels speak of were right."""

    rule: str
    grade: str
    findings: int
    precision: Proportion


@dataclass(frozen=True)
class RuleScore:
    """How a rule fared: its findings, and which of those that labels speak of were right.

    `takeable` counts its GPUs to take back, `recall` the GPUs that labels want found by it; `unwatched` are those of them
    that nobody could have found for want of rows.
    """

    rule: str
    findings: int
    precision: Proportion
    takeable: Proportion
    recall: Proportion
    unwatched: int
    by_grade: tuple[RuleGrade, ...]


@dataclass(frozen=True)
class GradeScore:
    """Of one confidence: the GPUs to take back, each counted once in a window, and which of those that are labelled could be."""

    grade: str
    gpus: int
    takeable: Proportion


@dataclass(frozen=True)
class Reliability:
    """Of the GPUs that were promised to stay unused with a probability from above `low` to `high`: the mean of it, and what labels say."""

    low: float
    high: float
    promised: float
    takeable: Proportion


@dataclass(frozen=True)
class Evaluation:
    """What labels say of the windows between two moments.

    `takeable` counts the GPUs to take back of any confidence, `takeable_recall` those that a label says could be taken back.
    """

    since_ms: int
    until_ms: int
    windows: int
    labels: Labels
    rules: tuple[RuleScore, ...]
    grades: tuple[GradeScore, ...]
    takeable: GradeScore
    takeable_recall: Proportion
    reliability: tuple[Reliability, ...]
    states: StateAgreement

    @property
    def findings(self) -> int:
        return sum(each.findings for each in self.rules)

    @property
    def judged(self) -> int:
        """Findings that a label speaks of."""
        return sum(each.precision.judged for each in self.rules)


def evaluate(
    inputs: Inputs,
    ledger: WindowLedger,
    labels: Labels,
    *,
    inventory: Inventory,
    every_ms: int | None = None,
    now_ms: int,
) -> Evaluation:
    """Judges the window, or each window of `every_ms` in it, the last one ending with it.

    A part at the start that is shorter is not judged. The states are judged over all of the window. Raises UsageError where
    the window is shorter than `every_ms`.
    """
    index = LabelIndex(labels)
    windows = [ledger.window] if every_ms is None else list(_windows(ledger.window, ledger, every_ms))
    judged = []
    for window in windows:
        part = replace(inputs, window=window, back=None)
        cut = ledger if every_ms is None else load_window_ledger(part, or_empty=True, whole=ledger.whole)
        if not cut.inside.stretches.is_empty():
            context = open_context(part, cut, inventory, now_ms)
            judged.append(judge_findings(context, found_by_rules(context), index))
    return Evaluation(
        since_ms=ledger.summary.since_ms,
        until_ms=ledger.summary.until_ms,
        windows=len(judged),
        labels=labels,
        rules=_by_rule(judged),
        grades=tuple(_of_grades(grade, judged, [grade]) for grade in GRADES),
        takeable=_of_grades("all", judged, GRADES),
        takeable_recall=Proportion.of(found for each in judged for found in each.could_be_taken.values()),
        reliability=tuple(reliability(judged)),
        states=state_agreement(ledger.inside.stretches, labels.states),
    )


def _windows(window: Window, ledger: WindowLedger, every_ms: int) -> Iterator[Window]:
    """Windows of one length, the earliest first, that end where the whole does: as asked for, or with what was seen."""
    first_ms, last_ms = ledger.inside.stretches.select(pl.col("time").min(), pl.col("end").max()).row(0)
    since_ms = first_ms if window.since_ms is None else window.since_ms
    until_ms = last_ms if ledger.end_ms is None else ledger.end_ms
    number = (until_ms - since_ms) // every_ms
    if not number:
        raise UsageError(
            f"the window from {format_ms(since_ms)} to {format_ms(until_ms)} is shorter than --every",
            "give a shorter --every, or an earlier --since",
        )
    for nth in range(number, 0, -1):
        yield Window(until_ms - nth * every_ms, until_ms - (nth - 1) * every_ms)


def _by_rule(judged: Sequence[WindowVerdicts]) -> tuple[RuleScore, ...]:
    """Every rule that found something, or that a label wants to find something, in the order of the rules."""
    verdicts = [each for window in judged for each in window.verdicts]
    expected = [each for window in judged for each in window.expected]
    there = {each.finding.rule for each in verdicts} | {each.rule for each in expected}
    scores = []
    for rule in (rule.name for rule in RULES if rule.name in there):
        own = [each for each in verdicts if each.finding.rule == rule]
        wanted = [each.found for each in expected if each.rule == rule]
        scores.append(
            RuleScore(
                rule,
                len(own),
                Proportion.of(each.right for each in own),
                Proportion.of(right for each in own for right in each.takeable.values()),
                Proportion.of(wanted),
                wanted.count(None),
                tuple(_of_grade(rule, grade, own) for grade in GRADES),
            )
        )
    return tuple(scores)


def _of_grade(rule: str, grade: str, verdicts: Sequence[Verdict]) -> RuleGrade:
    own = [each.right for each in verdicts if each.finding.confidence.grade == grade]
    return RuleGrade(rule, grade, len(own), Proportion.of(own))


def _of_grades(name: str, judged: Sequence[WindowVerdicts], grades: Sequence[str]) -> GradeScore:
    gpus = 0
    takeable: list[bool] = []
    for window in judged:
        own = [each for each in window.verdicts if each.finding.confidence.grade in grades and promises(each.finding)]
        known: Mapping[str, bool] = {gpu: right for each in own for gpu, right in each.takeable.items()}
        gpus += len({gpu for each in own for gpu in each.finding.reclaimable_gpus})
        takeable += known.values()
    return GradeScore(name, gpus, Proportion.of(takeable))


def reliability(judged: Sequence[WindowVerdicts]) -> Iterator[Reliability]:
    """What was promised and what was kept, by class of probability; each class has its upper end."""
    said = [
        (outlook.probability, right)
        for window in judged
        for each in window.verdicts
        if (outlook := each.finding.confidence.outlook) is not None and outlook.probability is not None
        for right in each.takeable.values()
    ]
    for low, high in pairwise(_EDGES):
        own = [(promised, right) for promised, right in said if low < promised <= high]
        if own:
            mean = sum(promised for promised, _ in own) / len(own)
            yield Reliability(low, high, mean, Proportion.of(right for _, right in own))
