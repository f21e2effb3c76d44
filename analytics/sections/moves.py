"""The right-size findings: who could move to which card, and what that would save."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.decide.totals import saving_of, savings
from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number
from analytics.language.sentences import tr, tr_many
from analytics.report.model import Report
from analytics.sections.finding_heading import at_most
from analytics.sections.findings import by_cost
from analytics.sections.section import Cell, LinkedCell, Section, SectionColumn
from analytics.workloads.model import Finding

_SHOWN = 50


def moves(report: Report) -> Section:
    """What saves most comes first, then what costs most."""
    found = by_cost(each for each in report.findings if each.category == "right_size")
    found.sort(key=lambda each: -(saving_of(each) or 0.0))  # unknown savings go last, by their cost
    rest = found[_SHOWN:]
    currency = report.money.currency
    return Section(
        name="moves",
        title=tr("What could do with less"),
        question=tr("Who would need to change what, and what would it save in this window?"),
        headline=_headline(found, currency),
        columns=(
            SectionColumn("finding", tr("finding"), "finding"),
            SectionColumn("holder", tr("user"), "holder"),
            SectionColumn("gpus", tr("GPUs"), "count"),
            SectionColumn("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            SectionColumn("card", tr("card"), "name"),
            SectionColumn("target", tr("card to move to"), "words"),
            SectionColumn("saving", tr("would save"), "money"),
            SectionColumn("cost", tr("cost"), "money"),
            SectionColumn("confidence", tr("confidence"), "grade"),
        ),
        rows=tuple(_row(each, currency) for each in found[:_SHOWN]),
        notes=(tr("and {number} more with {hours} GPU-hours", number=Number(len(rest)), hours=GpuHours(sum(each.gpu_ms for each in rest))),) if rest else (),
        wide=True,
    )  # fmt: skip


def _headline(found: Sequence[Finding], currency: str | None) -> str:
    if not found:
        return tr("No finding about the size of cards.")
    count = tr_many("{number} finding.", "{number} findings.", len(found))
    saved = savings(found)
    if not saved.known:
        return SentenceList([count, tr("What they would save is not known.")], " ")
    known = tr_many(
        "{number} of them has a known saving: {amount}.",
        "{number} of them have known savings: {amount} together, where of several ways for the same work the largest counts.",
        saved.known,
        amount=Amount(saved.amount, currency),
    )
    return SentenceList([count, known], " ")


def _row(finding: Finding, currency: str | None) -> tuple[Cell, ...]:
    return (
        LinkedCell(finding.sentence, "finding", finding.finding_id),
        finding.holder or finding.without_holder,
        Number(len(finding.gpus)),
        GpuHours(finding.gpu_ms),
        plain(str(finding.evidence.numbers.get("model") or "")),
        target_card(finding),
        Amount(saving_of(finding), currency),
        at_most(finding, Amount(finding.cost, currency)),
        finding.confidence.grade,
    )


def target_card(finding: Finding) -> str:
    """The card, the part of one or the one that is shared; where it is none of the fleet's that is said."""
    numbers = finding.evidence.numbers
    if finding.rule == "co_location":
        return tr("one card for both")
    profile, card = numbers.get("mig_profile"), numbers.get("recommended_card")
    if profile:
        return tr("MIG instance {profile}", profile=str(profile))
    if not card:
        return "-"
    name = plain(str(card))
    if "recommended_in_fleet" in numbers and not numbers["recommended_in_fleet"]:
        return tr("{card} (not in this fleet)", card=name)
    return name
