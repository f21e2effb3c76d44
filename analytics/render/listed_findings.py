"""Which findings a list begins with, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analytics.decide.lifecycle import action_sentence
from analytics.language.quantities import Day
from analytics.language.sentences import Sentence, say, say_many

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.decide.actions import Action
    from analytics.report.model import Report
    from analytics.workloads.model import Finding

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


@dataclass(frozen=True)
class Hidden:
    """Who has hidden a finding, why, and the last day on which it stays hidden; None for no end.

    `actor` and `reason` are empty where that is somebody whom the edition does not name, `reason` also where none was given.
    """

    actor: str
    reason: str
    until: Day | None


def hidden(report: Report, finding: Finding) -> Hidden:
    """The suppression of one of the report's suppressed findings."""
    last = next(each for each in reversed(report.review.actions[finding.finding_id]) if each.kind == "suppress")
    until = None if last.expires_ms is None else Day(last.expires_ms - 1)  # an end is the first moment after
    return Hidden(last.actor, last.reason or "", until) if _may_name(report, last) else Hidden("", "", until)


def notes(report: Report, finding: Finding) -> tuple[str, ...]:
    """The finding's notes; an edition for people has what others did, and neither who they are nor their words."""
    unnamed = {
        str(action_sentence(action)): action
        for action in report.review.actions.get(finding.finding_id, ())
        if not _may_name(report, action)
    }
    return tuple(_unnamed(unnamed[each]) if each in unnamed else each for each in finding.notes)


def _may_name(report: Report, action: Action) -> bool:
    """Whether the report may tell who did something: everybody to the fleet's lead, to people only themselves."""
    return not report.scope.is_personal or action.actor in {person.name for person in report.holders}


def _unnamed(action: Action) -> Sentence:
    """When and what; not by whom, why, or to which address."""
    did = action_sentence(replace(action, reason="", channel=""))
    return say("{label}: {value}", label=did.values["moment"], value=did.values["what"])
