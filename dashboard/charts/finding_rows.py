"""All findings as a table to sort and filter: what, how surely, whose, where, how much, since when, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.decide.lifecycle import STATUSES
from analytics.language.plain_text import plain
from analytics.language.sentences import say, say_many
from analytics.render.findings_text import ENDED
from analytics.render.listed_findings import notified
from analytics.workloads.model import CATEGORIES
from dashboard.grid import MOMENT, NUMBER, RANK, Cell, Column, ranked
from fallow.clock import from_ms

if TYPE_CHECKING:
    from analytics.report.model import Report
    from analytics.workloads.model import Finding
    from dashboard.grid import Row
    from dashboard.view import View

_GRADES = ("high", "medium", "low")
_ORDER = tuple(STATUSES)

CATEGORY_NAMES = {
    "reclaim": say("take back"),
    "right_size": say("right-size"),
    "efficiency": say("efficiency"),
    "demand": say("demand"),
    "coverage": say("not observed"),
}
"""What a category is for, in two words."""

_COLUMNS = (
    ("finding", say("finding"), "text", 270),
    ("confidence", say("confidence"), RANK, 165),
    ("holder", say("holder"), "text", 110),
    ("team", say("team"), "text", 95),
    ("status", say("status"), RANK, 120),
    ("host", say("host"), "text", 115),
    ("gpus", say("GPUs"), NUMBER, 75),
    ("gpu_hours", say("GPU-hours"), NUMBER, 100),
    ("cost", say("cost"), NUMBER, 120),
    ("since", say("since"), MOMENT, 118),
    ("told", say("holder told"), NUMBER, 170),
    ("command", say("next command"), "text", 320),
    ("category", say("category"), RANK, 130),
    ("rule", say("rule"), "text", 160),
    ("finding_id", say("id"), "text", 130),
)


def columns(view: View) -> list[Column]:
    """The columns with their headings."""
    return [Column(field, view.say(name), kind, width_px) for field, name, kind, width_px in _COLUMNS]


def rows(view: View) -> list[Row]:
    """A row for each finding of the view in the report's order; `standing` is its status as the commands name it."""
    return [(each.finding_id, _cells(view, each)) for each in view.report.review.findings]


def _cells(view: View, finding: Finding) -> dict[str, Cell | str]:
    words = view.language
    holder = plain(finding.holder) if finding.holder else view.say(finding.without_holder)
    told = sum(each.kind == "notify" for each in view.report.review.actions.get(finding.finding_id, ()))
    return {
        "finding": view.say(heading(finding, view.report)),
        "holder": holder,
        "team": plain(finding.team or ""),
        "host": plain(finding.host),
        "gpus": Cell(len(finding.gpus), words.number(len(finding.gpus))),
        "gpu_hours": Cell(finding.gpu_hours, words.hours(finding.gpu_ms)),
        "cost": Cell(finding.cost, words.money(finding.cost, finding.currency)),
        "since": Cell(finding.since_ms, words.day(finding.since_ms), _day(view, finding.since_ms)),
        "told": Cell(told, view.say(notified(view.report, finding))),
        "command": plain(finding.next_command, 4000) or view.say(ENDED),
        "rule": finding.rule,
        "finding_id": finding.finding_id,
        "standing": finding.status,
        **ranked(len(finding.confidence.failed), view.say(confidence(finding)), "confidence"),
        **ranked(_ORDER.index(finding.status), view.say(finding.status), "status"),
        **ranked(CATEGORIES.index(finding.category), view.say(CATEGORY_NAMES[finding.category]), "category"),
    }


def _day(view: View, time_ms: int) -> str:
    return from_ms(time_ms).astimezone(view.zone).date().isoformat()


def heading(finding: Finding, report: Report) -> str:
    """`8 GPUs never used since first seen`; that they are simulated only where others are not: else it stands above."""
    apart = finding.simulated and report.simulated_gpus < report.summary.totals.gpus
    gpus = say_many("{number} GPU", "{number} GPUs", len(finding.gpus))
    what = say("{gpus} {sentence}", gpus=gpus, sentence=finding.sentence)
    return say("{sentence} (simulated)", sentence=what) if apart else what


def confidence(finding: Finding) -> str:
    """`medium, 1 failed`: how sure it is, and how many of its conditions do not hold."""
    grade, failed = say(finding.confidence.grade), len(finding.confidence.failed)
    return say_many("{grade}, {number} failed", "{grade}, {number} failed", failed, grade=grade) if failed else grade
