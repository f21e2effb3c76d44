"""Findings in a few lines each: the costliest, and those about somebody or something."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Moment, Number
from analytics.language.sentences import tr, tr_many
from analytics.names import JOINER
from analytics.report.model import Report
from analytics.sections.finding_heading import at_most, heading
from analytics.sections.findings import costliest
from analytics.sections.section import Cell, LinkedCell, Section, SectionColumn
from analytics.sections.wording import asked_for, with_waiting
from analytics.workloads.model import Finding

_FIRST = 6
_HOST_MOST = 200
"""Characters of a host that an address can name."""


def costliest_findings(report: Report) -> Section:
    """The first of those that cost most."""
    found = costliest(report)
    first = found[:_FIRST]
    gpus = [gpu for finding in first for gpu in finding.gpus]
    overlap = tr("Some of these findings are about the same GPUs: their hours and costs do not add up.")
    return Section(
        name="findings",
        title=tr("The costliest findings"),
        question=tr("What can be taken back or changed first, from whom, and what is it worth in this window?"),
        headline=asked_for(report) if found else with_waiting(report, tr("No finding in this window.")),
        columns=(
            SectionColumn("finding", tr("finding"), "finding"),
            SectionColumn("confidence", tr("confidence"), "grade"),
            SectionColumn("holder", tr("user"), "words"),
            SectionColumn("host", tr("host"), "words"),
            SectionColumn("gpus", tr("GPUs"), "count"),
            SectionColumn("gpu-hours", tr("GPU-hours"), "gpu_hours"),
            SectionColumn("cost", tr("cost"), "money"),
            SectionColumn("since", tr("since"), "moment"),
        ),
        rows=tuple(_row(each, report) for each in first),
        notes=(overlap,) if len(gpus) > len(set(gpus)) else (),
        wide=True,
    )


def _row(finding: Finding, report: Report) -> tuple[Cell, ...]:
    return (
        LinkedCell(heading(finding, report), "finding", finding.finding_id, aside=finding.finding_id),
        finding.confidence.grade,
        plain(finding.holder) if finding.holder else finding.without_holder,
        _place(finding),
        Number(len(finding.gpus)),
        GpuHours(finding.gpu_ms),
        at_most(finding, Amount(finding.cost, report.money.currency)),
        Moment(finding.since_ms),
    )


def _place(finding: Finding) -> Cell:
    """The host, or the one GPU there."""
    if len(finding.gpus) == 1:
        return LinkedCell(plain(finding.host or finding.gpus[0]), "gpu", finding.gpus[0])
    if finding.host and JOINER not in finding.host and len(finding.host) < _HOST_MOST:
        return LinkedCell(plain(finding.host), "host", finding.host)
    return plain(finding.host)


def findings_about(found: Sequence[Finding], currency: str | None, *, name: str, title: str, question: str) -> Section:
    """All of some findings, each in one row."""
    return Section(
        name=name,
        title=title,
        question=question,
        headline=tr_many("{number} finding in this window.", "{number} findings in this window.", len(found))
        if found
        else tr("No finding in this window."),
        columns=(
            SectionColumn("finding", tr("finding"), "finding"),
            SectionColumn("confidence", tr("confidence"), "grade"),
            SectionColumn("holder", tr("user"), "holder"),
            SectionColumn("since", tr("since"), "moment"),
            SectionColumn("gpus", tr("GPUs"), "count"),
            SectionColumn("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            SectionColumn("cost", tr("cost"), "money"),
        ),
        rows=tuple(
            (
                LinkedCell(finding.sentence, "finding", finding.finding_id),
                finding.confidence.grade,
                finding.holder or finding.without_holder,
                Moment(finding.since_ms),
                Number(len(finding.gpus)),
                GpuHours(finding.gpu_ms),
                at_most(finding, Amount(finding.cost, currency)),
            )
            for finding in found
        ),
        wide=True,
    )
