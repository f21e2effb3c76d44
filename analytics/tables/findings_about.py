"""Findings in a few lines each: those about somebody or something."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.quantities import Amount, GpuHours, Moment, Number
from analytics.language.sentences import tr, tr_many
from analytics.tables.finding_heading import at_most
from analytics.tables.table import Column, LinkedCell, Table
from analytics.workloads.model import Finding


def findings_about(found: Sequence[Finding], currency: str | None, *, name: str, title: str, question: str) -> Table:
    """All of some findings, each in one row."""
    return Table(
        name=name,
        title=title,
        question=question,
        headline=tr_many("{number} finding in this window.", "{number} findings in this window.", len(found))
        if found
        else tr("No finding in this window."),
        columns=(
            Column("finding", tr("finding"), "finding"),
            Column("confidence", tr("confidence"), "grade"),
            Column("holder", tr("user"), "holder"),
            Column("since", tr("since"), "moment"),
            Column("gpus", tr("GPUs"), "count"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("cost", tr("cost"), "money"),
        ),
        rows=tuple(
            (
                LinkedCell(finding.sentence, "finding", finding.finding_id),
                tr(finding.confidence.grade),
                finding.holder or finding.without_holder,
                Moment(finding.since_ms),
                Number(len(finding.gpus)),
                GpuHours(finding.gpu_ms),
                at_most(finding.unconfirmed, Amount(finding.cost, currency)),
            )
            for finding in found
        ),
        wide=True,
    )
