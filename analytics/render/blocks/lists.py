"""Findings that stand apart from those to act on: busy but inefficient, winding down, gone, and suppressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours
from analytics.language.sentences import Listed, say, say_many
from analytics.names import JOINER
from analytics.render.blocks.block import Block
from analytics.render.listed_findings import became, busy_but_inefficient, ended, hidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.language.languages import Language
    from analytics.report.model import Report
    from analytics.workloads.model import Finding

_MOST = 8
_REASON_MOST = 200


def inefficient(report: Report, language: Language) -> Block:
    """Work that could use its GPUs better: nothing to take back."""
    own = [_told(each) for each in busy_but_inefficient(report)]
    about = say("not reclaimable: these GPUs work, but could do more")
    return _listed(say("Busy but inefficient"), own, say("Nothing was found."), language, about)


def winding_down(report: Report, language: Language) -> Block:
    """Holders whose work fades out."""
    own = [_told(each) for each in report.findings if each.rule == "wind_down"]
    return _listed(say("Winding down"), own, say("Nobody's work fades out."), language)


def gone(report: Report, language: Language) -> Block:
    """What became of last week's findings, the wrong ones first."""
    none = say("No finding has gone.") if report.review.reversals else say("There was no week before to compare with.")
    own = [say("{finding}: {what}", finding=_told(each), what=became(report, each)) for each in ended(report)]
    return _listed(say("Closed and reversed since last week"), own, none, language)


def suppressed(report: Report, language: Language) -> Block:
    """What somebody has hidden, who, until when and why."""
    own = [
        say("{finding}: {what}", finding=_told(each), what=_hidden(report, each)) for each in report.review.suppressed
    ]
    return _listed(say("Suppressed"), own, say("Nothing is suppressed."), language)


def _listed(title: str, told: Sequence[str], none: str, language: Language, about: str = "") -> Block:
    """The first of them, and how many more there are, or that there are none."""
    rest = len(told) - _MOST
    more = say_many("and {number} more finding", "and {number} more findings", rest)
    return Block(
        title=language.say(title),
        about=language.say(about),
        items=tuple(language.say(each) for each in told[:_MOST]),
        lines=(language.say(none),) if not told else (language.say(more),) if rest > 0 else (),
    )


def _told(finding: Finding) -> str:
    """`F-1a2b3c4d5e, 96.0 GPU-hours, 660.48 USD: 1 GPU on node-07 held without running a kernel (ann)`."""
    cost = [] if finding.cost is None else [say("{cost}", cost=Amount(finding.cost, finding.currency))]
    sums = Listed([say("{hours} GPU-hours", hours=GpuHours(finding.gpu_ms)), *cost], ", ")
    gpus = say_many("{number} GPU", "{number} GPUs", len(finding.gpus))
    hosts = finding.host.count(JOINER) + 1
    if not finding.host:
        where: str = gpus
    elif hosts == 1:
        where = say("{gpus} on {host}", gpus=gpus, host=plain(finding.host))
    else:
        where = say("{gpus} on {host}", gpus=gpus, host=say_many("{number} host", "{number} hosts", hosts))
    return say(
        "{id}, {sums}: {where} {sentence} ({holder})",
        id=finding.finding_id, sums=sums, where=where, sentence=finding.sentence,
        holder=plain(finding.holder) if finding.holder else say(finding.without_holder),
    )  # fmt: skip


def _hidden(report: Report, finding: Finding) -> str:
    told = hidden(report, finding)
    if not told.actor:
        return say("no end given") if told.until is None else say("until {day}", day=told.until)
    reason = plain(told.reason, _REASON_MOST) if told.reason else say("no reason given")
    if told.until is None:
        return say("{reason} ({actor})", reason=reason, actor=plain(told.actor))
    return say("{reason} ({actor}, until {day})", reason=reason, actor=plain(told.actor), day=told.until)
