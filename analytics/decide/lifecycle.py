"""How a finding stands: what became of it since last week, and what people did about it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from analytics.decide.actions import Action
from analytics.decide.reversals import Reversal
from analytics.language.language import Sentence
from analytics.language.sentences import tr
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.quality.model import Stamp
from analytics.workloads.model import Finding

RELEASED = "released"
"""The reason of an acknowledgement that says that the GPUs were given back: a claim that the next window checks."""

_DECIDES = {"ack": "acknowledged", "suppress": "suppressed", "reopen": ""}
_DID = {"ack": "acknowledged", "suppress": "suppressed", "reopen": "reopened", "notify": "notified", "note": "note"}


def with_status(
    findings: Iterable[Finding],
    last_week: Iterable[str],
    actions: Mapping[str, Sequence[Action]],
    reversed_before: Mapping[str, Reversal],
    as_of_ms: int,
    *,
    seen_until_ms: int,
) -> tuple[Finding, ...]:
    """The findings with their status, and with what was done and written about them among the notes.

    `last_week` are the ids of last week's findings; a suppression counts until it expires, as of `as_of_ms`.
    `seen_until_ms` is the end of what was seen: whoever said before it that GPUs were released is taken at their word until then.
    """
    known = frozenset(last_week)
    standing = []
    for finding in findings:
        own = actions.get(finding.finding_id, ())
        reversal = reversed_before.get(finding.finding_id)
        broken_ms = broken_release(finding, own, seen_until_ms)
        counted = own if broken_ms is None else [each for each in own if not _says_released(each)]
        notes = (
            *finding.notes,
            *([] if reversal is None else [_again(reversal)]),
            *map(action_sentence, own),
            *([] if broken_ms is None else [tr("said released on {moment}, still held", moment=Stamp(broken_ms))]),
        )
        otherwise = "standing" if finding.finding_id in known else "new"
        standing.append(replace(finding, status=status_of(counted, otherwise, as_of_ms), notes=notes))
    return tuple(standing)


def broken_release(finding: Finding, actions: Sequence[Action], seen_until_ms: int) -> int | None:
    """When somebody last said that the finding's GPUs were released, if some of them were seen after it and are not.

    A GPU that can be taken back at the end was seen in the hour before it: only a claim older than that hour is refuted.
    """
    decided = [each for each in actions if each.kind in _DECIDES]
    if not decided or not _says_released(decided[-1]) or not finding.reclaimable or finding.holder is None:
        return None
    said_ms = decided[-1].time_ms
    return said_ms if said_ms <= seen_until_ms - SILENT_AFTER_MS else None


def _says_released(action: Action) -> bool:
    return action.kind == "ack" and action.reason == RELEASED


def status_of(actions: Sequence[Action], otherwise: str, as_of_ms: int) -> str:
    """The status that the actions leave, the earliest first: the last of ack, suppress and reopen decides.

    Without one, or after a reopening or an expired suppression, a notification counts if it came later.
    """
    decided, notified = "", False
    expires_ms = None
    for action in actions:
        if action.kind in _DECIDES:
            decided, notified, expires_ms = _DECIDES[action.kind], False, action.expires_ms
        notified = notified or action.kind == "notify"
    if decided == "suppressed" and expires_ms is not None and expires_ms <= as_of_ms:
        decided = ""
    return decided or ("notified" if notified else otherwise)


def ended_findings(
    last_week: Iterable[Finding],
    findings: Iterable[Finding],
    reversed_before: Mapping[str, Reversal],
    seen: Container[str],
) -> tuple[Finding, ...]:
    """Last week's findings that are not there any more: `closed`, `reversed`, or `unseen` without a GPU among those `seen` at the end."""
    there = {finding.finding_id for finding in findings}
    ended = []
    for finding in last_week:
        if finding.finding_id in reversed_before and finding.finding_id not in there:
            ended.append(reversed_by(reversed_before[finding.finding_id]))
        elif finding.finding_id not in there:
            unseen = bool(finding.gpus) and not any(gpu in seen for gpu in finding.gpus)
            status = "unseen" if unseen else "closed"
            ended.append(replace(finding, status=status, reclaimable_gpus=(), next_command=""))
    return tuple(ended)


def reversed_by(reversal: Reversal) -> Finding:
    """Last week's finding as one that was wrong: nothing of it can be taken back, and its last note says since when."""
    finding, notes = reversal.finding, (*reversal.finding.notes, _again(reversal))
    return replace(finding, status="reversed", reclaimable_gpus=(), next_command="", notes=notes)


def _again(reversal: Reversal) -> Sentence:
    return tr("last week's finding was wrong: used again from {moment}", moment=Stamp(reversal.used_ms))


def action_sentence(action: Action) -> Sentence:
    """An action as one line: when, who, what, and their own words."""
    what = tr(_DID[action.kind]) if action.kind in _DID else action.kind
    if action.expires_ms is not None:
        what = tr("{what} until {moment}", what=what, moment=Stamp(action.expires_ms))
    if action.channel:
        what = tr("{what} via {channel}", what=what, channel=action.channel)
    said = tr("{moment}, {actor}: {what}", moment=Stamp(action.time_ms), actor=action.by, what=what)
    return tr("{said}: {reason}", said=said, reason=action.reason) if action.reason else said
