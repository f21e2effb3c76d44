"""What planners record on the pages: actions on findings, annotations and scenarios, as the commands record them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import TypeVar

from analytics.decide.actions import LONGEST_REASON, Action, after_what_is_known, load_actions, record
from analytics.decide.annotations import ALL, POOL, TEAM, Annotation, add_annotation, remove_annotation
from analytics.decide.lifecycle import action_sentence, status_of
from analytics.language.sentences import Moment, SentenceList, plain, tr, tr_many
from analytics.plan.replay.comparisons import SavedScenario, remove_scenario, save_scenario
from dashboard.access.audit import ACTION, ANNOTATION, REFUSED, SCENARIO, audit, audit_first, in_role
from dashboard.access.people import PLANNER, NotAllowedError
from dashboard.error_panels import button_line, error_line
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.clock import parse_window, to_ms
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake

T = TypeVar("T")


def carry_out(
    source: LakeSource, search: str | None, action: Callable[[View], tuple[str, T]], *, findings: bool = False
) -> tuple[str, T | None, View | None]:
    """Run a button's action; return a sentence in the reader's language, the action's result, and the view after it.

    `action` returns the sentence and the result. If there is no view, or `action` raises FallowError, the sentence is
    the reason, and result and view are None. View is None also if it cannot be made again. `findings`: see `view_of`.
    """
    view = view_of(source, search, findings=findings)
    if isinstance(view, Problem):
        return button_line(source, search, view), None, None
    try:
        sentence, result = action(view)
    except FallowError as error:
        return error_line(view, error), None, None
    source.forget()
    now = view_of(source, search, findings=findings)
    return view.translate(sentence), result, None if isinstance(now, Problem) else now


ACK, SNOOZE, REOPEN, NOTE = "ack", "snooze", "reopen", "note"
KINDS = (ACK, SNOOZE, REOPEN, NOTE)
_IDS_A_LINE = 100
"""The number of finding ids in one line of the audit log."""

_DONE = {
    ACK: "Acknowledged {number} {finding|findings}",
    SNOOZE: "Snoozed {number} {finding|findings}",
    REOPEN: "Reopened {number} {finding|findings}",
    NOTE: "Noted on {number} {finding|findings}",
}


@dataclass(frozen=True)
class Wish:
    """An action that a reader asks for.

    Attributes:
        kind: one of KINDS.
        ids: the findings to act on.
        text: the reason or the note.
        until: the last day of a snooze.
        seen: the id of the last action that the reader's page showed, by finding.
    """

    kind: str
    ids: tuple[str, ...]
    text: str = ""
    until: str = ""
    seen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ActionOutcome:
    """The recorded actions.

    Attributes:
        done: the actions; none where nothing was recorded.
        message: the message for the reader.
        seen: the id of the last action that the reader's page shows from now on, by finding.
    """

    done: tuple[Action, ...]
    message: str
    seen: dict[str, str]


def act(view: View, wish: Wish, now_ms: int) -> ActionOutcome:
    """Record the wish on all of its findings or on none; return the outcome.

    If others acted after the reader's page was made, nothing is recorded and the outcome names their actions.

    Raises:
        NotAllowedError: the reader may not act, or does not see a finding.
        UsageError: the wish is incomplete.
        AuditError, LakeError: the action cannot be written.
    """
    try:
        view.reader.require(PLANNER)
        ids = _visible_ids(view, wish.ids)
    except NotAllowedError:
        asked = ", ".join(plain(str(each)) for each in wish.ids)
        _audit(view, f"refused {wish.kind}", asked, REFUSED)
        raise
    reason, expires_ms = _reason(wish), _expires_ms(wish, now_ms, view.zone)
    lake = view.whole.inputs.lake.require()
    before = load_actions(lake)
    news = _unseen_actions(ids, wish, before)
    if news:
        return ActionOutcome((), _conflict_message(news), {**wish.seen, **last_of(before, ids)})
    # open findings are not reopened: the record holds changes only
    ids = [each for each in ids if wish.kind != REOPEN or status_of(before.get(each, ()), "", now_ms)]
    if not ids:
        return ActionOutcome((), tr("Nothing to reopen: it is neither acknowledged nor snoozed."), dict(wish.seen))
    at_ms = after_what_is_known(now_ms, ids, before)
    for at in range(0, len(ids), _IDS_A_LINE):
        _audit_first(view, wish.kind, ", ".join(ids[at : at + _IDS_A_LINE]), ACTION)
    done = record(lake, wish.kind, ids, view.reader.actor, now_ms=at_ms, reason=reason, expires_ms=expires_ms)
    for each in done:
        _audit(view, each.kind, f"{each.finding_id} ({each.action_id})", ACTION)
    known = _actions_with(lake, before, done)
    return ActionOutcome(done, _done_message(wish, done, known), {**wish.seen, **last_of(known, ids)})


def _actions_with(
    lake: Lake, before: Mapping[str, tuple[Action, ...]], done: Sequence[Action]
) -> Mapping[str, tuple[Action, ...]]:
    """Return all actions in the lake; where the lake no longer answers, those from before and the recorded ones."""
    try:
        return load_actions(lake)
    except FallowError:
        own = {each.finding_id: (*before.get(each.finding_id, ()), each) for each in done}
        return {**before, **own}


def last_of(actions: Mapping[str, Sequence[Action]], ids: Iterable[str]) -> dict[str, str]:
    """Return by finding the id of the last action that changes its status; findings without one are left out."""
    changes = {each: [action for action in actions.get(each, ()) if action.kind != NOTE] for each in ids}
    return {each: own[-1].action_id for each, own in changes.items() if own}


def _visible_ids(view: View, ids: Iterable[str]) -> list[str]:
    """Return the ids once each; raises NotAllowedError unless the reader sees all: a browser may send any id."""
    wanted = list(dict.fromkeys(ids))
    known = set(view.report.evidence)
    if not known.issuperset(wanted):  # the rules of the window run only for others
        known |= {finding.finding_id for finding in view.report.review.findings}
    unknown = [each for each in wanted if each not in known]
    if unknown:
        raise NotAllowedError(
            f"there is no finding {plain(str(unknown[0]))} on your page",
            "load the page again: the finding may have ended",
        )
    if not wanted:
        raise UsageError("no finding is chosen", "choose one or more rows of the table")
    return wanted


def _reason(wish: Wish) -> str | None:
    text = wish.text.strip()
    if len(text) > LONGEST_REASON:
        raise UsageError("the text is too long", f"stay below {LONGEST_REASON:,} characters")
    if not text and wish.kind in (SNOOZE, NOTE):
        sentence = "a snooze takes a reason" if wish.kind == SNOOZE else "a note takes a text"
        raise UsageError(sentence, "write a few words: others will read them")
    return text or None


def _expires_ms(wish: Wish, now_ms: int, zone: tzinfo) -> int | None:
    """Return the end of a snooze, after its last day in the reader's zone; None until a planner reopens the finding."""
    if wish.kind != SNOOZE or not wish.until:
        return None
    expires_ms = parse_window(None, wish.until, zone=zone).until_ms
    if expires_ms is None or expires_ms <= now_ms:
        raise UsageError(f"{plain(wish.until)} has passed", "choose a day in the future")
    return expires_ms


def _unseen_actions(ids: Iterable[str], wish: Wish, now: Mapping[str, Sequence[Action]]) -> list[Action]:
    """Return each finding's last action that is not on the reader's page; none for a note, which never conflicts."""
    if wish.kind == NOTE:
        return []
    last = last_of(now, ids)
    news = {action for each, action in last.items() if action != wish.seen.get(each, "")}
    return [action for each in last for action in now[each] if action.action_id in news]


def _conflict_message(news: Sequence[Action]) -> SentenceList:
    what = [tr("{finding}: {what}", finding=each.finding_id, what=action_sentence(each)) for each in news]
    again = tr("Nothing is recorded yet: press the button again to record your action anyway.")
    return SentenceList([tr("Others acted in the meantime."), *what, again], "\n")


def _done_message(wish: Wish, done: Sequence[Action], known: Mapping[str, Sequence[Action]]) -> SentenceList:
    """Return what was done and until when, and later actions of others at the same moment, which decide."""
    first = tr_many(_DONE[wish.kind], len(done))
    expires_ms = done[0].expires_ms
    if expires_ms is not None:
        first = tr("{what} until {moment}", what=first, moment=Moment(expires_ms))
    later = [
        tr("{finding}: {what}, which came later and decides", finding=own.finding_id, what=action_sentence(each))
        for own in done
        for each in known[own.finding_id]
        if wish.kind != NOTE and each > own and each.kind in (ACK, SNOOZE, REOPEN)
    ]
    return SentenceList([first, *later], "\n")


def annotations_in_sight(view: View) -> tuple[Annotation, ...]:
    """Return the annotations of the window that concern the view, by their moment."""
    summary = view.report.ledger.summary
    return tuple(each for each in annotations_about(view) if summary.since_ms <= each.at_ms <= summary.until_ms)


def annotations_about(view: View) -> tuple[Annotation, ...]:
    """Return the annotations of all times about everything or about the view's pool and team, by their moment.

    A view of the whole fleet has all pools and teams, even those without rows in the lake.
    """
    query = view.query
    pools = (query.pool,) if query.pool else view.names["pool"]
    return tuple(
        each
        for each in view.annotations
        if each.scope == ALL
        or (each.scope == POOL and (each.name in pools or not (query.pool or query.team)))
        or (each.scope == TEAM and each.name == (query.team or each.name))
    )


def abouts(view: View) -> tuple[tuple[str, str | None], ...]:
    """Return what the reader can annotate: everything, a pool or a team; a planner of one team only that team."""
    if view.reader.team is not None:
        return ((TEAM, view.reader.team),)
    return ((ALL, None), *((POOL, each) for each in view.names["pool"]), *((TEAM, each) for each in view.names["team"]))


def annotate(view: View, text: str, when: str, about: tuple[str, str | None], now_ms: int) -> Annotation:
    """Write an annotation and return it.

    Raises NotAllowedError for a reader who may not annotate, UsageError for an incomplete annotation, and LakeError.
    """
    _require_planner(view, "annotate")
    if about not in abouts(view):
        raise UsageError("the annotation has no subject", "choose everything, one pool or one team")
    at_ms = _moment_ms(view, when)
    lake = view.whole.inputs.lake.require()
    scope, name = about
    _audit_first(view, "annotate", "", ANNOTATION)
    added = add_annotation(lake, text, view.reader.actor, at_ms=at_ms, now_ms=now_ms, scope=scope, name=name)
    _audit(view, "annotate", added.annotation_id, ANNOTATION)
    return added


def withdraw(view: View, annotation_id: str, now_ms: int) -> Annotation:
    """Remove an annotation that the reader could have written, and return it.

    Raises the errors of `annotate`, and FallowError where the annotation is already removed.
    """
    what = "remove annotation"
    _require_planner(view, what)
    own = {each.annotation_id for each in annotations_in_sight(view) if can_withdraw(view, each)}
    if annotation_id not in own:
        _audit(view, f"refused {what}", plain(annotation_id), REFUSED)
        raise NotAllowedError(
            "there is no such annotation on your page", "load the page again: the annotation may be removed"
        )
    _audit_first(view, what, annotation_id, ANNOTATION)
    gone = remove_annotation(view.whole.inputs.lake.require(), annotation_id, view.reader.actor, now_ms=now_ms)
    _audit(view, what, annotation_id, ANNOTATION)
    return gone


def can_withdraw(view: View, annotation: Annotation) -> bool:
    """Return whether the reader may remove the annotation; planners of one team may only remove those of that team."""
    is_own = view.reader.team is None or (annotation.scope, annotation.name) == (TEAM, view.reader.team)
    return view.reader.may(PLANNER) and is_own


def _moment_ms(view: View, when: str) -> int:
    """Return the moment of `2026-11-20` or `2026-11-20 09:00`, in the reader's zone unless the text has an offset."""
    try:
        local = datetime.fromisoformat(when.strip())
        return to_ms(local if local.tzinfo is not None else local.replace(tzinfo=view.zone))
    except (ValueError, OverflowError):
        raise UsageError(f"'{plain(when)}' is not a date and time", "write it as 2026-11-20 09:00") from None


def may_save(view: View) -> bool:
    """Return whether the reader may save scenarios: only planners of the whole fleet may."""
    return view.reader.may(PLANNER) and view.reader.team is None


def record_scenario(view: View, name: str, policy: str, now_ms: int) -> SavedScenario:
    """Save a scenario and return it.

    Raises NotAllowedError for a reader who may not save, UsageError for an invalid name, and LakeError.
    """
    _require_saving(view, "save scenario")
    _audit_first(view, "save scenario", plain(name), SCENARIO)
    saved = save_scenario(view.whole.inputs.lake.require(), name, policy, view.reader.actor, now_ms=now_ms)
    _audit(view, "save scenario", plain(saved.name), SCENARIO)
    return saved


def withdraw_scenario(view: View, name: str, now_ms: int) -> SavedScenario:
    """Remove a scenario and return it. Raises the errors of `record_scenario`, and FallowError for an unknown name."""
    _require_saving(view, "remove scenario")
    _audit_first(view, "remove scenario", plain(name), SCENARIO)
    gone = remove_scenario(view.whole.inputs.lake.require(), name, view.reader.actor, now_ms=now_ms)
    _audit(view, "remove scenario", plain(name), SCENARIO)
    return gone


def _require_saving(view: View, what: str) -> None:
    if not may_save(view):
        _audit(view, f"refused {what}", "", REFUSED)
        raise NotAllowedError("only planners of the whole fleet save scenarios", "ask one of them")


def _require_planner(view: View, what: str) -> None:
    try:
        view.reader.require(PLANNER)
    except NotAllowedError:
        _audit(view, f"refused {what}", "", REFUSED)
        raise


def _audit_first(view: View, what: str, about: str, event: str) -> None:
    """Write down what the reader is about to do. Raises AuditError where that fails; the act must then not happen."""
    audit_first(view.reader.actor, in_role(view.reader, f"asks to {what}", about), event)


def _audit(view: View, what: str, about: str, event: str) -> None:
    audit(view.reader.actor, in_role(view.reader, what, about), event)
