"""Evaluate the conclusions of some windows by labels, with sums by rule and by confidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from analytics.decide.review import found_by_rules
from analytics.evaluation.labels import STATES_MEANT, Labels
from analytics.intervals import SPAN_MS, clip
from analytics.inventory import Inventory
from analytics.proportions import wilson
from analytics.rules import RULES
from analytics.states import WITHOUT_EVIDENCE
from analytics.window import Inputs, WindowLedger, load_window_ledger
from analytics.workloads.confidence import COVERAGE_MIN
from analytics.workloads.context import open_context
from analytics.workloads.model import GRADES, HIGH_MIN, MEDIUM_MIN, Context, Finding
from fallow.clock import Window, format_ms
from fallow.errors import UsageError

LABELLED_MIN = 0.90
"""A rule is wrong about a GPU if labels against the rule cover this share of the finding's time: a label about an hour
does not exclude what happened in another hour.
"""

Span = tuple[int, int, bool]
"""Start, end, and the label's value."""


@dataclass(frozen=True)
class Proportion:
    """The number of right conclusions among those that could be judged; unknown if none could."""

    right: int
    judged: int

    @property
    def share(self) -> float | None:
        return self.right / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the Wilson interval at 90 %; None if nothing could be judged."""
        return None if self.share is None else wilson(self.share, self.judged)

    @classmethod
    def of(cls, verdicts: Iterable[bool | None]) -> Proportion:
        """Return the proportion of the verdicts that are not None."""
        known = [each for each in verdicts if each is not None]
        return cls(sum(known), len(known))


@dataclass(frozen=True)
class Verdict:
    """The labels' verdict on a finding. GPUs without a label are left out."""

    finding: Finding
    found: Mapping[str, bool]
    """By GPU of the finding: whether its rule should have found the GPU."""
    takeable: Mapping[str, bool]
    """By GPU to reclaim: whether it could be reclaimed."""

    @property
    def right(self) -> bool | None:
        """Return whether no label contradicts the finding; None without a label."""
        values = (*self.found.values(), *self.takeable.values())
        return all(values) if values else None


@dataclass(frozen=True)
class Expected:
    """A GPU that a rule should find in a time, by a label."""

    rule: str
    gpu: str
    found: bool | None
    """None if the GPU could not be found because rows are missing."""


@dataclass(frozen=True)
class WindowVerdicts:
    """The judged findings of a window, and the findings that were expected."""

    verdicts: tuple[Verdict, ...]
    expected: tuple[Expected, ...]
    could_be_taken: Mapping[str, bool]
    """GPUs that could be reclaimed at the end of the window by a label, and whether a finding names them."""


def _spans(rows: pl.DataFrame) -> Mapping[tuple[str, ...], list[Span]]:
    """Return the last columns by the first columns."""
    found: dict[tuple[str, ...], list[Span]] = defaultdict(list)
    for *key, time, end, value in rows.iter_rows():
        found[tuple(key)].append((time, end, value))
    return found


class LabelIndex:
    """Labels by question, as short lists of spans."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._takeable = _spans(labels.takeable.select("gpu", "time", "end", "takeable"))
        self._rules = _spans(labels.rules.select("gpu", "rule", "time", "end", "ought"))

    def takeable(self, gpu: str, moment_ms: int) -> bool | None:
        """Return whether the GPU could be reclaimed at a moment; None without a label."""
        spans = self._takeable[gpu,]
        return next((takeable for time, end, takeable in spans if time <= moment_ms < end), None)

    def ought(self, gpu: str, rule: str, since_ms: int, until_ms: int) -> bool | None:
        """Return whether the rule should find the GPU in a time.

        True if any part is labelled so, False if LABELLED_MIN of it is labelled otherwise.
        """
        inside = [
            (min(end, until_ms) - max(time, since_ms), ought)
            for time, end, ought in self._rules[gpu, rule]
            if time < until_ms and end > since_ms
        ]
        if any(ought for _, ought in inside):
            return True
        return False if inside and sum(ms for ms, _ in inside) >= LABELLED_MIN * (until_ms - since_ms) else None


def judge_findings(context: Context, findings: Sequence[Finding], index: LabelIndex) -> WindowVerdicts:
    """Return the verdicts on the findings of a window. For GPUs to reclaim, labels at its last moment count."""
    moment_ms = context.until_ms - 1
    verdicts = tuple(_verdict(finding, index, moment_ms) for finding in findings)
    named = {gpu for each in verdicts if promises(each.finding) for gpu in each.finding.reclaimable_gpus}
    known = context.inside.segments.filter(
        pl.col("time") <= moment_ms, pl.col("end") > moment_ms, ~pl.col("state").is_in(WITHOUT_EVIDENCE)
    )
    free = (gpu for gpu in known["gpu"].unique().sort() if index.takeable(gpu, moment_ms))
    return WindowVerdicts(verdicts, tuple(_expected(context, findings, index)), {gpu: gpu in named for gpu in free})


def promises(finding: Finding) -> bool:
    """Return whether each GPU to reclaim can be judged. The releasable GPUs of a pool are only a number."""
    return finding.reclaimable and finding.pool is None


def _verdict(finding: Finding, index: LabelIndex, moment_ms: int) -> Verdict:
    span = (finding.evidence.since_ms, finding.evidence.until_ms)
    found = {gpu: index.ought(gpu, finding.rule, *span) for gpu in finding.gpus}
    offered = finding.reclaimable_gpus if promises(finding) else ()
    takeable = {gpu: index.takeable(gpu, moment_ms) for gpu in offered}
    return Verdict(finding, _known(found), _known(takeable))


def _known(values: Mapping[str, bool | None]) -> dict[str, bool]:
    return {gpu: value for gpu, value in values.items() if value is not None}


def _expected(context: Context, findings: Iterable[Finding], index: LabelIndex) -> Iterable[Expected]:
    """Yield each labelled time inside the window in which a rule should find a GPU, for GPUs that the lake observed."""
    ought = index.labels.rules.filter("ought")
    wanted = clip(ought, context.since_ms, context.until_ms).with_row_index("place")
    rows = context.inside.segments.select("gpu", "time", "end", "state")
    wanted = wanted.join(rows.select("gpu").unique(), on="gpu", how="semi")
    seen = rows.filter(pl.col("state") != "unknown").drop("state")
    both = wanted.join(seen, on="gpu", suffix="_seen").with_columns(
        time=pl.max_horizontal("time", "time_seen"), end=pl.min_horizontal("end", "end_seen")
    )
    seen_ms = both.filter(SPAN_MS > 0).group_by("place").agg(seen_ms=SPAN_MS.sum())
    spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for finding in findings:
        for gpu in finding.gpus:
            spans[finding.rule, gpu].append((finding.evidence.since_ms, finding.evidence.until_ms))
    judged = wanted.join(seen_ms, on="place", how="left").with_columns(pl.col("seen_ms").fill_null(0)).sort("place")
    for row in judged.iter_rows(named=True):
        time, end = row["time"], row["end"]
        found = any(first < end and last > time for first, last in spans[row["rule"], row["gpu"]])
        watched = row["seen_ms"] >= COVERAGE_MIN * (end - time)
        yield Expected(row["rule"], row["gpu"], found if found or watched else None)


@dataclass(frozen=True)
class StateAgreement:
    """GPU time by label and by the ledger's state, in milliseconds."""

    total_ms: int
    """Time of the whole ledger."""
    observed_ms: int
    """Observed time of the whole ledger."""
    time_ms: Mapping[tuple[str, str], int]

    @property
    def labelled_ms(self) -> int:
        """Return the time of the ledger with a labelled state, observed or not."""
        return sum(self.time_ms.values())

    @property
    def judged_ms(self) -> int:
        """Return the observed part of the labelled time."""
        return sum(ms for (_, state), ms in self.time_ms.items() if state != "unknown")

    @property
    def agreed_ms(self) -> int:
        return sum(ms for (label, state), ms in self.time_ms.items() if state in STATES_MEANT[label])

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that occur, in the order of their explanation."""
        there = {label for label, _ in self.time_ms}
        return tuple(label for label in STATES_MEANT if label in there)

    def recorded(self, state: str) -> tuple[int, int]:
        """Return, for labelled time with a state in the ledger, the time on which a label agrees, and all of it."""
        own = {label: ms for (label, each), ms in self.time_ms.items() if each == state}
        return sum(ms for label, ms in own.items() if state in STATES_MEANT[label]), sum(own.values())

    def labelled(self, label: str) -> tuple[int, int]:
        """Return, for observed time with a label, the time on which the ledger agrees, and all of it."""
        own = {state: ms for (each, state), ms in self.time_ms.items() if each == label and state != "unknown"}
        return sum(ms for state, ms in own.items() if state in STATES_MEANT[label]), sum(own.values())


def state_agreement(segments: pl.DataFrame, states: pl.DataFrame) -> StateAgreement:
    """Return how the ledger's rows agree with labels (`gpu`, `time`, `end`, `state`) that do not overlap."""
    rows = segments.select("gpu", "time", "end", "state")
    both = rows.join(states.rename({"state": "label"}), on="gpu", suffix="_labelled").with_columns(
        time=pl.max_horizontal("time", "time_labelled"), end=pl.min_horizontal("end", "end_labelled")
    )
    found = both.filter(SPAN_MS > 0).group_by("label", "state").agg(ms=SPAN_MS.sum())
    total, unknown = rows.select(total=SPAN_MS.sum(), unknown=SPAN_MS.filter(pl.col("state") == "unknown").sum()).row(0)
    return StateAgreement(total, total - unknown, {(label, state): ms for label, state, ms in found.iter_rows()})


_EDGES = (0.0, 0.2, 0.4, 0.6, MEDIUM_MIN, 0.9, HIGH_MIN, 1.0)
"""Edges of the classes of promised probabilities."""


@dataclass(frozen=True)
class RuleGrade:
    """A rule's findings of one confidence, and how many of the labelled ones were right."""

    rule: str
    grade: str
    findings: int
    precision: Proportion


@dataclass(frozen=True)
class RuleScore:
    """The result of a rule: its findings, and how many of the labelled ones were right."""

    rule: str
    findings: int
    precision: Proportion
    takeable: Proportion
    """The rule's GPUs to reclaim."""
    recall: Proportion
    """The GPUs that labels expect from the rule."""
    unwatched: int
    """Expected GPUs that could not be found because rows are missing."""
    by_grade: tuple[RuleGrade, ...]


@dataclass(frozen=True)
class GradeScore:
    """The GPUs to reclaim of one confidence, each once per window, and how many labelled ones could be reclaimed."""

    grade: str
    gpus: int
    takeable: Proportion


@dataclass(frozen=True)
class Reliability:
    """GPUs with a promise above `low` and up to `high` to stay unused: mean probability, and the labels' verdict."""

    low: float
    high: float
    promised: float
    takeable: Proportion


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of the windows between two moments."""

    since_ms: int
    until_ms: int
    windows: int
    labels: Labels
    rules: tuple[RuleScore, ...]
    grades: tuple[GradeScore, ...]
    takeable: GradeScore
    """The GPUs to reclaim of any confidence."""
    takeable_recall: Proportion
    """The GPUs that could be reclaimed by a label."""
    reliability: tuple[Reliability, ...]
    states: StateAgreement

    @property
    def findings(self) -> int:
        return sum(each.findings for each in self.rules)

    @property
    def judged(self) -> int:
        """Return the number of findings with a label."""
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
    """Return the evaluation of the window, or of its windows of length `every_ms`, the last of which ends with it.

    A shorter part at the start is not judged. The states are judged over the whole window. Raises UsageError if the
    window is shorter than `every_ms`.
    """
    index = LabelIndex(labels)
    windows = [ledger.window] if every_ms is None else list(_windows(ledger.window, ledger, every_ms))
    judged = []
    for window in windows:
        part = replace(inputs, window=window, back=None)
        cut = ledger if every_ms is None else load_window_ledger(part, or_empty=True, whole=ledger.whole)
        if not cut.inside.segments.is_empty():
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
        states=state_agreement(ledger.inside.segments, labels.states),
    )


def _windows(window: Window, ledger: WindowLedger, every_ms: int) -> Iterator[Window]:
    """Yield adjacent windows of one length, the earliest first; the last one ends with the whole window.

    The whole window starts at its own start or, if it has none, with the first observed row. A rest there that is
    shorter than one window is left out. Raises UsageError if the whole window is too short.
    """
    first_ms, last_ms = ledger.inside.segments.select(pl.col("time").min(), pl.col("end").max()).row(0)
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
    """Return every rule with a finding or an expected finding, in the order of the rules."""
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
    """Yield promised and kept probability by class. A class includes its upper end."""
    outcomes = [
        (outlook.probability, right)
        for window in judged
        for each in window.verdicts
        if (outlook := each.finding.confidence.outlook) is not None and outlook.probability is not None
        for right in each.takeable.values()
    ]
    for low, high in pairwise(_EDGES):
        own = [(promised, right) for promised, right in outcomes if low < promised <= high]
        if own:
            mean = sum(promised for promised, _ in own) / len(own)
            yield Reliability(low, high, mean, Proportion.of(right for _, right in own))
