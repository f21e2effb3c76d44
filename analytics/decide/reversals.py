"""How right findings were: last week's by whether their user came back, and each rule by a site's own labels.

The labels' record is saved by `fallow evaluate --save` in the lake's table `judgement`, and findings are graded by it from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from analytics.decide.actions import add_rows, added_rows, file_number
from analytics.intervals import SPAN_MS, clip
from analytics.ledger.sampled import with_unconfirmed
from analytics.proportions import wilson
from analytics.rules import RULES_BY_NAME
from analytics.states import UNOCCUPIED, WITHOUT_EVIDENCE
from analytics.workloads.confidence import COVERAGE_MIN, good_record
from analytics.workloads.model import GRADES, Context, Finding
from fallow import schema
from fallow.actors import Actor
from fallow.clock import WEEK_MS
from fallow.lake import Lake


@dataclass(frozen=True)
class Reversal:
    """A finding of last week that was wrong: which of its GPUs were used again, and when first."""

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
    """What became of the findings of one week before that named GPUs to take back.

    `horizon_ms` is how much time has been since then: a week. `observed_share` is how much of those GPUs' time was
    observed in it. A finding whose GPUs were not used again, but not observed for 90 % of that time either, is not judged.
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
    """What became, until the window's end, of the findings of the window one week before; None where there was none.

    A GPU that a holder kept idle was used again when that holder, or somebody unknown, ran kernels on it; one that nobody
    had, when anybody did. What was `low` at the time was used again when it became `active`.
    """
    if before is None:
        return None
    claimed = [finding for finding in findings if finding.reclaimable and not RULES_BY_NAME[finding.rule].of_pool]
    named = pl.DataFrame(
        [(number, gpu, finding.holder) for number, finding in enumerate(claimed) for gpu in finding.reclaimable_gpus],
        schema={"number": pl.Int64, "gpu": pl.String, "whom": pl.String},
        orient="row",
    )
    horizon_ms = min(WEEK_MS, context.until_ms - before.until_ms)
    after = _after(context, before, named)
    seen = (SPAN_MS - pl.col("unconfirmed_ms")).filter(~pl.col("state").is_in(WITHOUT_EVIDENCE)).sum()
    sums = after.group_by("number", "gpu").agg(sum=seen)
    # 0 where the GPU was never seen again
    seen_ms = named.join(sums, on=("number", "gpu"), how="left").with_columns(pl.col("sum").fill_null(0))
    wrong = _used_again(after, claimed)
    unseen = set(seen_ms.filter(pl.col("sum") < COVERAGE_MIN * horizon_ms)["number"]) - set(wrong)
    judged = [(number, each) for number, each in enumerate(claimed) if number not in unseen]

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
    """What the named GPUs did after the earlier window, with the finding's number and holder and the state at its end.

    What point samples alone call idle was not seen to be.
    """
    start_ms, end_ms = before.until_ms, before.until_ms + WEEK_MS
    since = context.whole.stretches.filter(
        (pl.col("end") > start_ms) & pl.col("gpu").is_in(named["gpu"].unique().implode())
    )
    confirmed = with_unconfirmed(since, context.floors, context.inventory)
    ledger = clip(confirmed.select("gpu", "time", "end", "state", "holder", "unconfirmed_ms"), start_ms, end_ms)
    last = before.inside.stretches.sort("end").group_by("gpu", maintain_order=True).agg(was=pl.col("state").last())
    return named.join(ledger, on="gpu").join(last, on="gpu", how="left")


def _used_again(after: pl.DataFrame, claimed: list[Finding]) -> dict[int, Reversal]:
    """The findings whose GPUs were used again, by number."""
    works = (pl.col("state") == "active") | ((pl.col("state") == "low") & (pl.col("was") != "low"))
    names = (pl.col(name).str.split("+") for name in ("whom", "holder"))
    shared = next(names).list.set_intersection(next(names)).list.len() > 0
    anybody = pl.col("was").is_in(UNOCCUPIED) | pl.col("whom").is_null() | pl.col("holder").is_null()
    used = after.filter(works.fill_null(value=False) & (anybody | shared).fill_null(value=True))
    found = used.group_by("number").agg(pl.col("gpu").unique().sort(), pl.col("time").min())
    return {
        row["number"]: Reversal(claimed[row["number"]], tuple(row["gpu"]), row["time"])
        for row in found.iter_rows(named=True)
    }


@dataclass(frozen=True)
class RuleRecord:
    """Of a rule's findings of one confidence in some windows: how many a label spoke of, and how many of those were right."""

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
    """Adds the records of one evaluation, all or none; raises LakeError."""
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
    """The newest record of each rule and confidence, of those about windows that ended before then; raises LakeError.

    A window is never graded by labels of its own time: what was said of last month stays the same.
    """
    rows = added_rows(lake, schema.JUDGEMENT).sort("time_ms", "evaluation_id")
    known = rows.filter(rows["until"] < before_ms).select("rule", "confidence", "findings", "judged", "right")
    return {(rule, grade): RuleRecord(rule, grade, *counts) for rule, grade, *counts in known.iter_rows()}


def graded_by_records(context: Context, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those of rules that were wrong too often with the failures that say so."""
    known = load_records(context.lake, context.until_ms)
    graded = []
    for finding in findings:
        record = known.get((finding.rule, finding.confidence.grade))
        failed = [] if record is None else good_record(record.grade, record.judged, record.right)
        confidence = replace(finding.confidence, failed=(*finding.confidence.failed, *failed))
        graded.append(replace(finding, confidence=confidence) if failed else finding)
    return graded
