"""Which findings a list begins with, and what it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.quantities import Day
from analytics.language.sentences import say, say_many

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.findings.model import Finding
    from analytics.report.model import Report

_APART = "efficiency"
"""The category that has a table of its own: nothing there is to take back."""


def by_cost(findings: Iterable[Finding]) -> list[Finding]:
    """The costliest first; those without a price last, by GPU time."""
    return sorted(findings, key=lambda each: (each.cost is None, -(each.cost or 0.0), -each.gpu_ms, each.finding_id))


def to_act_on(report: Report) -> list[Finding]:
    """The findings that are about GPUs to take back or to change: what can be taken back first, then by cost."""
    return [finding for finding in report.findings if finding.category != _APART]


def costliest(report: Report) -> list[Finding]:
    """Those to act on, the costliest first."""
    return by_cost(to_act_on(report))


def busy_but_inefficient(report: Report) -> list[Finding]:
    """The findings about GPUs that work but could do more, the costliest first."""
    return by_cost(finding for finding in report.findings if finding.category == _APART)


def ended(report: Report) -> list[Finding]:
    """What became of last week's findings: the wrong ones first, each kind by cost."""
    return sorted(by_cost(report.review.ended), key=lambda each: each.status != "reversed")


def became(report: Report, finding: Finding) -> str:
    """What became of one of last week's findings: `reversed: last week's was wrong: used again from ...`."""
    if finding.status != "reversed" or not finding.notes:
        return say(finding.status)
    why = say("{status}: {why}", status=say(finding.status), why=finding.notes[-1])
    again = any(each.finding_id == finding.finding_id for each in report.review.findings)
    return say("{what}; found again this week", what=why) if again else why


def notified(report: Report, finding: Finding) -> str:
    """How often the holder was told, and when last."""
    told = [each for each in report.review.actions.get(finding.finding_id, ()) if each.kind == "notify"]
    if not told:
        return say("never")
    return say_many(
        "{number} time, last on {day}", "{number} times, last on {day}", len(told), day=Day(told[-1].time_ms)
    )
