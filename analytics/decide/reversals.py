"""How correct findings were: last week's by whether their user came back, and each rule by a site's own labels.

`fallow evaluate --save` saves the record of the labels in the lake's table `judgement`. Findings use it from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from analytics.decide.actions import add_rows, added_rows, file_number
from analytics.intervals import SPAN_MS, clip
from analytics.ledger.sampled import with_unconfirmed
from analytics.proportions import wilson
from analytics.states import UNOCCUPIED, WITHOUT_EVIDENCE
from analytics.workloads.confidence import COVERAGE_MIN, good_record
from analytics.workloads.model import GRADES, Context, Finding
from fallow import schema
from fallow.actors import Actor
from fallow.clock import WEEK_MS
from fallow.lake import Lake


@dataclass(frozen=True)
class Reversal:
    """A wrong finding of last week: which of its GPUs were used again, and the first such time."""

    finding: Finding
    gpus: tuple[str, ...]
    used_ms: int


@dataclass(frozen=True)
class Rate:
    wrong: int
    judged: int

    @property
    def share(self) -> float | None:
        return self.wrong / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.share or 0.0, self.judged)


@dataclass(frozen=True)
class Reversals:
    """The outcome of the findings of one week before that promised that reclaimable GPUs stay unused.

    `horizon_ms` is the time since then: a week. `observed_share` is the observed share of those GPUs' time. A finding
    is not judged if its GPUs were not used again and less than 90 % of that time was observed.
    """

    until_ms: int
    horizon_ms: int
    total: Rate
    by_grade: Mapping[str, Rate]
    not_judged: int
    observed_share: float | None
    findings: tuple[Reversal, ...]

    @property
    def rate(self) -> float | None:
        return self.total.share

    @property
    def n(self) -> int:
        return self.total.judged


def reversals(context: Context, before: Context | None, findings: Iterable[Finding]) -> Reversals | None:
    """Return the outcome, at the window's end, of the findings of one week before; None without such findings.

    A GPU that a user held idle was used again if that user, or an unknown user, ran kernels on it. A GPU without a user
    was used again if any user ran kernels on it. A GPU at low use was used again when it became busy.
    """
    if before is None:
        return None
    # without a promise that they stay unused: a hung job that is started again was found rightly
    allocated = [each for each in findings if each.reclaimable and each.confidence.outlook and each.pool is None]
    named = pl.DataFrame(
        [(number, gpu, finding.user) for number, finding in enumerate(allocated) for gpu in finding.reclaimable_gpus],
        schema={"number": pl.Int64, "gpu": pl.String, "whom": pl.String},
        orient="row",
    )
    horizon_ms = min(WEEK_MS, context.until_ms - before.until_ms)
    after = _after(context, before, named)
    seen = (SPAN_MS - pl.col("unconfirmed_ms")).filter(~pl.col("state").is_in(WITHOUT_EVIDENCE)).sum()
    sums = after.group_by("number", "gpu").agg(sum=seen)
    # 0 where the GPU was never seen again
    seen_ms = named.join(sums, on=("number", "gpu"), how="left").with_columns(pl.col("sum").fill_null(0))
    wrong = _used_again(after, allocated)
    unseen = set(seen_ms.filter(pl.col("sum") < COVERAGE_MIN * horizon_ms)["number"]) - set(wrong)
    judged = [(number, each) for number, each in enumerate(allocated) if number not in unseen]

    def rate(grades: Iterable[str]) -> Rate:
        own = [number for number, each in judged if each.confidence.grade in grades]
        return Rate(sum(number in wrong for number in own), len(own))

    return Reversals(
        until_ms=before.until_ms,
        horizon_ms=horizon_ms,
        total=rate(GRADES),
        by_grade={grade: rate([grade]) for grade in GRADES},
        not_judged=len(unseen),
        observed_share=float(seen_ms["sum"].sum()) / (horizon_ms * len(named)) if len(named) and horizon_ms else None,
        findings=tuple(wrong[number] for number in sorted(wrong)),
    )


def _after(context: Context, before: Context, named: pl.DataFrame) -> pl.DataFrame:
    """Return the named GPUs after the earlier window, with the finding's number and user and the state at its end.

    Time that only point samples show as idle does not count as observed.
    """
    start_ms, end_ms = before.until_ms, before.until_ms + WEEK_MS
    since = context.whole.segments.filter(
        (pl.col("end") > start_ms) & pl.col("gpu").is_in(named["gpu"].unique().implode())
    )
    confirmed = with_unconfirmed(since, context.floors, context.inventory)
    ledger = clip(confirmed.select("gpu", "time", "end", "state", "user", "unconfirmed_ms"), start_ms, end_ms)
    last = before.inside.segments.sort("end").group_by("gpu", maintain_order=True).agg(was=pl.col("state").last())
    return named.join(ledger, on="gpu").join(last, on="gpu", how="left")


def _used_again(after: pl.DataFrame, allocated: list[Finding]) -> dict[int, Reversal]:
    """Return the findings whose GPUs were used again, by number."""
    works = (pl.col("state") == "active") | ((pl.col("state") == "low") & (pl.col("was") != "low"))
    names = (pl.col(name).str.split("+") for name in ("whom", "user"))
    shared = next(names).list.set_intersection(next(names)).list.len() > 0
    anybody = pl.col("was").is_in(UNOCCUPIED) | pl.col("whom").is_null() | pl.col("user").is_null()
    used = after.filter(works.fill_null(value=False) & (anybody | shared).fill_null(value=True))
    found = used.group_by("number").agg(pl.col("gpu").unique().sort(), pl.col("time").min())
    return {
        row["number"]: Reversal(allocated[row["number"]], tuple(row["gpu"]), row["time"])
        for row in found.iter_rows(named=True)
    }


@dataclass(frozen=True)
class RuleRecord:
    """A rule's findings of one confidence in some windows: how many had a label, and how many of these were correct."""

    rule: str
    grade: str
    findings: int
    judged: int
    right: int


def save_records(
    lake: Lake,
    records: Iterable[RuleRecord],
    *,
    since_ms: int,
    until_ms: int,
    labels_sha256: str,
    actor: Actor,
    now_ms: int,
) -> None:
    """Add the records of one evaluation, all or none. Raises LakeError."""
    number = file_number(now_ms)
    rows: list[dict[str, object]] = [
        {
            "time": now_ms,
            "evaluation_id": f"E-{number:x}",
            "rule": each.rule,
            "confidence": each.grade,
            "since": since_ms,
            "until": until_ms,
            "findings": each.findings,
            "judged": each.judged,
            "right": each.right,
            "labels_sha256": labels_sha256,
            **actor.columns(),
        }
        for each in records
    ]
    if rows:
        add_rows(lake, schema.JUDGEMENT, rows, now_ms, number)


def load_records(lake: Lake, before_ms: int) -> Mapping[tuple[str, str], RuleRecord]:
    """Return the newest record of each rule and confidence, from windows that ended before this time. Raises LakeError.

    Labels of a window's own time never grade it, so that a report on last month stays the same.
    """
    rows = added_rows(lake, schema.JUDGEMENT).sort("time_ms", "evaluation_id")
    known = rows.filter(rows["until"] < before_ms).select("rule", "confidence", "findings", "judged", "right")
    return {(rule, grade): RuleRecord(rule, grade, *counts) for rule, grade, *counts in known.iter_rows()}


def graded_by_records(context: Context, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings; those of rules that were wrong too often have failed conditions about it."""
    known = load_records(context.lake, context.until_ms)
    graded = []
    for finding in findings:
        record = known.get((finding.rule, finding.confidence.grade))
        failed = [] if record is None else good_record(record.grade, record.judged, record.right)
        confidence = replace(finding.confidence, failed=(*finding.confidence.failed, *failed))
        graded.append(replace(finding, confidence=confidence) if failed else finding)
    return graded
