"""Findings on the page: the costliest in full, the others in tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number
from analytics.language.sentences import Listed, say, say_many
from analytics.names import JOINER
from analytics.render.evidence_text import evidence
from analytics.render.findings_text import ENDED
from analytics.render.html.cells import bdi, said
from analytics.render.html.chart import Table
from analytics.render.listed_findings import became, busy_but_inefficient, costliest, ended, hidden, notes, notified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analytics.language.languages import Language
    from analytics.report.model import Report
    from analytics.workloads.model import Finding

MOST = 10
_MOST_ROWS = 8
_MOST_NAMED = 8


@dataclass(frozen=True)
class Card:
    """One finding in full, all of it in words; `gpus` are the names of those that can be taken back."""

    finding_id: str
    amount: str
    hours: str
    heading: Markup
    grade: str
    confidence: str
    failed: str
    facts: tuple[tuple[str, str | Markup], ...]
    evidence: str
    notes: str
    command: str
    ended: str
    gpus: Markup


def cards(report: Report, language: Language) -> list[Card]:
    """The ten costliest."""
    return [_card(report, finding, language) for finding in costliest(report)[:MOST]]


def others(report: Report, language: Language) -> str:
    """How many findings more there are; empty for none."""
    rest = len(costliest(report)) - MOST
    if rest <= 0:
        return ""
    return language.say(
        say_many(
            "And {number} more finding; the command fallow findings lists all.",
            "And {number} more findings; the command fallow findings lists all.",
            rest,
        )
    )


def _card(report: Report, finding: Finding, language: Language) -> Card:
    return Card(
        finding_id=finding.finding_id,
        amount="" if finding.cost is None else language.money(finding.cost, finding.currency),
        hours=language.say(say("{hours} GPU-hours", hours=GpuHours(finding.gpu_ms))),
        heading=_heading(finding, report, language),
        grade=finding.confidence.grade,
        confidence=language.say(say("{grade} confidence", grade=say(finding.confidence.grade))),
        failed=language.say(Listed(finding.confidence.failed)),
        facts=tuple((language.say(label), value) for label, value in _facts(report, finding, language)),
        evidence=language.say(evidence(finding)),
        notes=language.say(Listed([_short(each) for each in notes(report, finding)])),
        command=plain(finding.next_command, 4000),
        ended=language.say(ENDED),
        gpus=_names(finding, language),
    )


def _heading(finding: Finding, report: Report, language: Language) -> Markup:
    """`8 GPUs on node-07 never used since first seen`; that all is simulated stands above the page."""
    gpus = say_many("{number} GPU", "{number} GPUs", len(finding.gpus))
    apart = finding.simulated and report.simulated_gpus < report.summary.totals.gpus
    sentence = say("{sentence} (simulated)", sentence=finding.sentence) if apart else finding.sentence
    hosts = finding.host.split(JOINER) if finding.host else []
    if not hosts:
        return said(language, "{gpus} {sentence}", {}, gpus=gpus, sentence=sentence)
    several = language.say(say_many("{number} host", "{number} hosts", len(hosts)))
    where = bdi(hosts[0], 80) if len(hosts) == 1 else escape(several)
    return said(language, "{gpus} on {where} {sentence}", {"where": where}, gpus=gpus, sentence=sentence)


def _facts(report: Report, finding: Finding, language: Language) -> list[tuple[str, str | Markup]]:
    return [
        ("holder", _holder(finding, language)),
        *([("job", bdi(finding.job, 80))] if finding.job else []),
        ("to take back", language.say(_taken(finding))),
        ("first seen", language.day(finding.since_ms)),
        ("notified", language.say(notified(report, finding))),
        ("status", language.say(finding.status)),
    ]


def _short(note: str) -> str:
    """Sentences as they are; what people wrote on one line of 300 characters."""
    return note if type(note) is not str else plain(note, 300)


def _holder(finding: Finding, language: Language) -> Markup:
    whom = bdi(finding.holder) if finding.holder else escape(language.say(finding.without_holder))
    if not finding.team:
        return whom
    return said(language, "{holder} (team {team})", {"holder": whom, "team": bdi(finding.team)})


def _taken(finding: Finding) -> str:
    own = finding.reclaimable_gpus
    return say("{part} of {all}", part=Number(len(own)), all=Number(len(finding.gpus))) if own else say("none now")


def _names(finding: Finding, language: Language) -> Markup:
    own = finding.reclaimable_gpus
    rest = len(own) - _MOST_NAMED
    more = f", {language.say(say('and {number} more', number=Number(rest)))}" if rest > 0 else ""
    return Markup(", ").join(bdi(gpu, 60) for gpu in own[:_MOST_NAMED]) + more


def inefficient(report: Report, language: Language) -> Table | None:
    """Work that could use its GPUs better: never GPUs to take back."""
    return _listed(
        busy_but_inefficient(report), report, language, ("evidence", lambda each: language.say(evidence(each)))
    )


def winding_down(report: Report, language: Language) -> Table | None:
    """Holders whose work fades out."""
    own = [finding for finding in report.findings if finding.rule == "wind_down"]
    return _listed(own, report, language, ("evidence", lambda each: language.say(evidence(each))))


def gone(report: Report, language: Language) -> Table | None:
    """What became of last week's findings, the wrong ones first."""
    return _listed(
        ended(report), report, language, ("what became of it", lambda each: language.say(became(report, each)))
    )


def suppressed(report: Report, language: Language) -> Table | None:
    """What somebody has hidden, until when and why."""
    return _listed(report.review.suppressed, report, language, ("reason", lambda each: _reason(report, each, language)))


def _reason(report: Report, finding: Finding, language: Language) -> Markup:
    told = hidden(report, finding)
    if not told.actor:
        return escape(language.say(say("no end given") if told.until is None else say("until {day}", day=told.until)))
    why = bdi(told.reason) if told.reason else escape(language.say("no reason given"))
    names = {"reason": why, "who": bdi(told.actor, 60)}
    if told.until is None:
        return said(language, "{reason} ({who})", names)
    return said(language, "{reason} ({who}, until {day})", names, day=told.until)


def _listed(
    findings: Sequence[Finding],
    report: Report,
    language: Language,
    about: tuple[str, Callable[[Finding], str | Markup]],
) -> Table | None:
    """A row for each; `about` is the last column's heading and what it tells of a finding."""
    if not findings:
        return None
    label, told = about
    with_cost = any(each.cost is not None for each in findings)
    head = ("finding", "holder", "GPU-hours", *(["cost"] if with_cost else []), label)
    rows = tuple(
        (
            Markup("{} <small>{}</small>").format(_heading(each, report, language), each.finding_id),
            _holder(each, language),
            language.number(each.gpu_hours, 1),
            *([language.money(each.cost, each.currency)] if with_cost else []),
            told(each),
        )
        for each in findings[:_MOST_ROWS]
    )
    rest = len(findings) - len(rows)
    more = say_many("and {number} more finding", "and {number} more findings", rest)
    return Table(
        tuple(language.say(each) for each in head),
        rows,
        words=frozenset({1, len(head) - 1}),
        rest=language.say(more) if rest else "",
        listing=True,
    )
