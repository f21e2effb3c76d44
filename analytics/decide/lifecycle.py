"""The status of a finding: what happened since last week, and what people did about it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from analytics.decide.actions import Action
from analytics.decide.reversals import Reversal
from analytics.language.sentences import Sentence, tr
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.quality.model import Stamp
from analytics.workloads.model import Finding

RELEASED = "released"
"""Reason of an acknowledgement that reports the GPUs as released. The next window checks this report."""

_DECIDES = {"ack": "acknowledged", "snooze": "snoozed", "reopen": ""}
_DID = {"ack": "acknowledged", "snooze": "snoozed", "reopen": "reopened", "notify": "notified", "note": "note"}


def with_status(
    findings: Iterable[Finding],
    otherwise: Callable[[Finding], str],
    actions: Mapping[str, Sequence[Action]],
    reversed_before: Mapping[str, Reversal],
    as_of_ms: int,
    *,
    seen_until_ms: int,
) -> tuple[Finding, ...]:
    """Return the findings with their status, and with people's actions and comments among the notes.

    `otherwise` returns the status of a finding without a deciding action. A snooze counts until it expires, as of
    `as_of_ms`. `seen_until_ms` is the end of the observed time: a report that GPUs were released counts until then.
    """
    found = []
    for finding in findings:
        own = actions.get(finding.finding_id, ())
        reversal = reversed_before.get(finding.finding_id)
        broken_ms = broken_release(finding, own, seen_until_ms)
        counted = own if broken_ms is None else [each for each in own if not _says_released(each)]
        notes = (
            *finding.notes,
            *([] if reversal is None else [_again(reversal)]),
            *map(action_sentence, own),
            *(
                []
                if broken_ms is None
                else [tr("reported as released on {moment}, still held", moment=Stamp(broken_ms))]
            ),
        )
        found.append(replace(finding, status=status_of(counted, otherwise(finding), as_of_ms), notes=notes))
    return tuple(found)


def broken_release(finding: Finding, actions: Sequence[Action], seen_until_ms: int) -> int | None:
    """Return when a person last reported the finding's GPUs as released, if some are still held.

    A GPU that is reclaimable at the end was observed in the hour before the end. Only a report older than this hour is
    refuted.
    """
    decided = [each for each in actions if each.kind in _DECIDES]
    if not decided or not _says_released(decided[-1]) or not finding.reclaimable or finding.user is None:
        return None
    reported_ms = decided[-1].time_ms
    return reported_ms if reported_ms <= seen_until_ms - SILENT_AFTER_MS else None


def _says_released(action: Action) -> bool:
    return action.kind == "ack" and action.reason == RELEASED


def status_of(actions: Sequence[Action], otherwise: str, as_of_ms: int) -> str:
    """Return the status after the actions, the earliest first: the last ack, snooze or reopening decides.

    Without one, or after a reopening or an expired snooze, a later notification counts.
    """
    decided, notified = "", False
    expires_ms = None
    for action in actions:
        if action.kind in _DECIDES:
            decided, notified, expires_ms = _DECIDES[action.kind], False, action.expires_ms
        notified = notified or action.kind == "notify"
    if decided == "snoozed" and expires_ms is not None and expires_ms <= as_of_ms:
        decided = ""
    return decided or ("notified" if notified else otherwise)


def ended_findings(
    last_week: Iterable[Finding],
    findings: Iterable[Finding],
    reversed_before: Mapping[str, Reversal],
    seen: Container[str],
) -> tuple[Finding, ...]:
    """Return last week's findings that ended.

    They are `closed`, `reversed`, or `unseen` if no GPU is among those `seen` at the end.
    """
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
    """Return last week's finding as wrong: nothing is reclaimable, and its last note has the time of the new use."""
    finding, notes = reversal.finding, (*reversal.finding.notes, _again(reversal))
    return replace(finding, status="reversed", reclaimable_gpus=(), next_command="", notes=notes)


def _again(reversal: Reversal) -> Sentence:
    return tr("last week's finding was wrong: the GPUs were used again from {moment}", moment=Stamp(reversal.used_ms))


def action_sentence(action: Action) -> Sentence:
    """Return an action in one line: time, actor, action and reason."""
    what = tr(_DID[action.kind]) if action.kind in _DID else action.kind
    if action.expires_ms is not None:
        what = tr("{what} until {moment}", what=what, moment=Stamp(action.expires_ms))
    if action.channel:
        what = tr("{what} via {channel}", what=what, channel=action.channel)
    sentence = tr("{moment}, {actor}: {what}", moment=Stamp(action.time_ms), actor=action.by, what=what)
    return tr("{sentence}: {reason}", sentence=sentence, reason=action.reason) if action.reason else sentence
