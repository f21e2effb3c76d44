"""The right-size findings: who could move to which card, and what that would save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.decide.totals import saving_of, savings
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number
from analytics.language.sentences import Listed, say, say_many
from analytics.names import JOINER
from analytics.render.listed_findings import by_cost
from dashboard.charts.bars import NAME_MOST, finding_link, name_link, table
from dashboard.charts.panel import panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.workloads.model import Finding
    from dashboard.view import View

_MOST = 50
_HEADER = ("finding", "holder", "GPUs", "GPU-hours", "card", "card to move to", "would save", "cost", "confidence")


def moves(view: View) -> html.Section:
    """The panel; what saves most comes first, then what costs most."""
    found = by_cost(each for each in view.report.findings if each.category == "right_size")
    found.sort(key=lambda each: -(saving_of(each) or 0.0))
    rest = found[_MOST:]
    said = say("and {number} more with {hours} GPU-hours", number=Number(len(rest)), hours=GpuHours(sum(each.gpu_ms for each in rest)))  # fmt: skip
    link = dcc.Link(view.say(say("All findings")), href="/findings" + view.query.on_every_page.search)
    return panel(
        name="moves",
        title=view.say(say("What could do with less")),
        question=view.say(say("Who would need to change what, and what would it save in this window?")),
        finding=view.say(_finding(view, found)),
        body=[
            *([table([view.say(say(each)) for each in _HEADER], [_row(view, each) for each in found[:_MOST]], "moves-title", words=(0, 1, 4, 5, 8))] if found else []),
            *([html.P(view.say(said), className="note")] if rest else []),
            html.P(link, className="note"),
        ],
        wide=True,
    )  # fmt: skip


def _finding(view: View, found: Sequence[Finding]) -> str:
    if not found:
        return say("No finding about the size of cards.")
    count = say_many("{number} finding.", "{number} findings.", len(found))
    saved = savings(found)
    if not saved.known:
        return Listed([count, say("What they would save is not known.")], " ")
    told = say_many(
        "{number} of them has a known saving: {amount}.",
        "{number} of them have known savings: {amount} together, where of several ways for the same work the largest counts.",
        saved.known,
        amount=Amount(saved.amount, view.report.money.currency),
    )
    return Listed([count, told], " ")


def _row(view: View, finding: Finding) -> tuple[Any, ...]:
    speaks = view.language
    numbers = finding.evidence.numbers
    saving = saving_of(finding)
    return (
        finding_link(view, finding, view.say(finding.sentence)),
        _holder(view, finding),
        speaks.number(len(finding.gpus)),
        speaks.hours(finding.gpu_ms),
        plain(str(numbers.get("model") or ""), NAME_MOST),
        target(view, finding),
        speaks.money(saving, view.report.money.currency),
        speaks.money(finding.cost, view.report.money.currency),
        view.say(finding.confidence.grade),
    )


def _holder(view: View, finding: Finding) -> Any:
    if finding.holder is None:
        return view.say(finding.without_holder)
    if JOINER in finding.holder:
        return html.Bdi(plain(finding.holder, NAME_MOST))
    return name_link(finding.holder, "/holders", view.query.on_every_page.but(holder=finding.holder))


def target(view: View, finding: Finding) -> str:
    """The card, the part of one or the one that is shared; where it is none of the fleet's that is said."""
    numbers = finding.evidence.numbers
    if finding.rule == "co_location":
        return view.say(say("one card for both"))
    profile, card = numbers.get("mig_profile"), numbers.get("recommended_card")
    if profile:
        return view.say(say("MIG instance {profile}", profile=str(profile)))
    if not card:
        return "-"
    name = plain(str(card), NAME_MOST)
    if "recommended_in_fleet" in numbers and not numbers["recommended_in_fleet"]:
        return view.say(say("{card} (not in this fleet)", card=name))
    return name
