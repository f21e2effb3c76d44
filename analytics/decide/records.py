"""How each rule fared by a site's own labels: saved by `fallow evaluate --save`, and what findings are graded by from then on.

Rows of the lake's table `judgement`, only ever added, one file for each evaluation under a name that no other can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from analytics.decide.added_rows import add_rows, file_number
from analytics.frames import read_frame
from analytics.workloads.confidence import good_record
from analytics.workloads.model import Context, Finding
from fallow import schema
from fallow.actors import Actor
from fallow.lake import Lake


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
    files = lake.files(schema.JUDGEMENT.name)
    rows = read_frame(files, schema.JUDGEMENT, None, lake.left_out.leave_out).sort("time", "evaluation_id")
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
