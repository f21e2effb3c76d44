"""What labels say of findings: which were right, which were wrong, and which ought to be there and are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.evaluation.labels import Labels
from analytics.intervals import SPAN_MS, clip
from analytics.proportions import wilson
from analytics.rules import RULES_BY_NAME
from analytics.states import WITHOUT_EVIDENCE
from analytics.workloads.confidence import COVERAGE_MIN
from analytics.workloads.model import Context, Finding

LABELLED_MIN = 0.90
"""A rule is wrong about a GPU where labels that it ought not to fire cover this share of the finding's time: what a label
of an hour denies may have happened in another one."""

Span = tuple[int, int, bool]
"""Start, end, and what is said of it."""


@dataclass(frozen=True)
class Proportion:
    """How many of those that could be judged were right; nothing is known of none."""

    right: int
    judged: int

    @property
    def share(self) -> float | None:
        return self.right / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's at 90 %."""
        return None if self.share is None else wilson(self.share, self.judged)

    @classmethod
    def of(cls, verdicts: Iterable[bool | None]) -> Proportion:
        """Of those that are not None."""
        known = [each for each in verdicts if each is not None]
        return cls(sum(known), len(known))


@dataclass(frozen=True)
class Verdict:
    """What labels say of a finding: of its GPUs, whether its rule ought to have found them; of those to take back, whether one could.

    A GPU that no label speaks of is in neither.
    """

    finding: Finding
    found: Mapping[str, bool]
    takeable: Mapping[str, bool]

    @property
    def right(self) -> bool | None:
        """Whether no label contradicts it; None where none speaks of it."""
        said = (*self.found.values(), *self.takeable.values())
        return all(said) if said else None


@dataclass(frozen=True)
class Expected:
    """A GPU that a label wants found by a rule in some time; `found` is None where nobody could have, for want of rows."""

    rule: str
    gpu: str
    found: bool | None


@dataclass(frozen=True)
class WindowVerdicts:
    """The findings of one window as judged, and what ought to have been found.

    `could_be_taken` are the GPUs that a label says could be taken back at its end, and whether a finding names them.
    """

    verdicts: tuple[Verdict, ...]
    expected: tuple[Expected, ...]
    could_be_taken: Mapping[str, bool]


def _spans(rows: pl.DataFrame) -> Mapping[tuple[str, ...], list[Span]]:
    """By the first columns the others."""
    found: dict[tuple[str, ...], list[Span]] = defaultdict(list)
    for *key, time, end, value in rows.iter_rows():
        found[tuple(key)].append((time, end, value))
    return found


class LabelIndex:
    """Labels by what is asked of them: lists of spans, which are short."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._takeable = _spans(labels.takeable.select("gpu", "time", "end", "takeable"))
        self._rules = _spans(labels.rules.select("gpu", "rule", "time", "end", "ought"))

    def takeable(self, gpu: str, moment_ms: int) -> bool | None:
        """Whether the GPU could be taken back then, as far as a label says."""
        spans = self._takeable[gpu,]
        return next((takeable for time, end, takeable in spans if time <= moment_ms < end), None)

    def ought(self, gpu: str, rule: str, since_ms: int, until_ms: int) -> bool | None:
        """Whether the rule ought to find the GPU in that time: yes where any of it is labelled so, no where LABELLED_MIN is."""
        inside = [
            (min(end, until_ms) - max(time, since_ms), ought)
            for time, end, ought in self._rules[gpu, rule]
            if time < until_ms and end > since_ms
        ]
        if any(ought for _, ought in inside):
            return True
        return False if inside and sum(ms for ms, _ in inside) >= LABELLED_MIN * (until_ms - since_ms) else None


def judge_findings(context: Context, findings: Sequence[Finding], index: LabelIndex) -> WindowVerdicts:
    """What labels say of the findings of a window; of GPUs to take back, those that cover its last moment."""
    moment_ms = context.until_ms - 1
    verdicts = tuple(_verdict(finding, index, moment_ms) for finding in findings)
    named = {gpu for each in verdicts if promises(each.finding) for gpu in each.finding.reclaimable_gpus}
    known = context.inside.stretches.filter(
        pl.col("time") <= moment_ms, pl.col("end") > moment_ms, ~pl.col("state").is_in(WITHOUT_EVIDENCE)
    )
    free = (gpu for gpu in known["gpu"].unique().sort() if index.takeable(gpu, moment_ms))
    return WindowVerdicts(verdicts, tuple(_expected(context, findings, index)), {gpu: gpu in named for gpu in free})


def promises(finding: Finding) -> bool:
    """Whether each of the finding's GPUs to take back can be judged: of a pool's surplus it is the number that is meant."""
    return finding.reclaimable and not RULES_BY_NAME[finding.rule].of_pool


def _verdict(finding: Finding, index: LabelIndex, moment_ms: int) -> Verdict:
    span = (finding.evidence.since_ms, finding.evidence.until_ms)
    found = {gpu: index.ought(gpu, finding.rule, *span) for gpu in finding.gpus}
    offered = finding.reclaimable_gpus if promises(finding) else ()
    takeable = {gpu: index.takeable(gpu, moment_ms) for gpu in offered}
    return Verdict(finding, _known(found), _known(takeable))


def _known(said: Mapping[str, bool | None]) -> dict[str, bool]:
    return {gpu: value for gpu, value in said.items() if value is not None}


def _expected(context: Context, findings: Iterable[Finding], index: LabelIndex) -> Iterable[Expected]:
    """Every labelled time inside the window in which a rule ought to find a GPU that the lake saw in it."""
    ought = index.labels.rules.filter("ought")
    wanted = clip(ought, context.since_ms, context.until_ms).with_row_index("place")
    rows = context.inside.stretches.select("gpu", "time", "end", "state")
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
