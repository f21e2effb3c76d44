"""What planners record on the pages: actions on findings, annotations and scenarios, as the commands record them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from analytics.decide.actions import LONGEST_REASON, Action, after_what_is_known, load_actions, record
from analytics.decide.annotations import ALL, POOL, TEAM, Annotation, add_annotation, remove_annotation
from analytics.decide.lifecycle import action_sentence, status_of
from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Moment
from analytics.language.sentences import tr, tr_many
from analytics.plan.replay.comparisons import SavedScenario, remove_scenario, save_scenario
from dashboard.access.audit import ACTION, ANNOTATION, REFUSED, SCENARIO, audit, audit_first, in_role
from dashboard.access.people import PLANNER, NotAllowedError
from dashboard.error_panels import error_line, problem_line
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.clock import parse_window, to_ms
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake

T = TypeVar("T")


def carry_out(
    source: LakeSource, search: str | None, action: Callable[[View], tuple[str, T]]
) -> tuple[str, T | None, View | None]:
    """What a button of a page comes to: a sentence in the reader's language, what `action` returned, and the view after it.

    `action` returns the sentence with its result. Where there is no view, or it raises FallowError, the sentence is the
    reason and the others are None; the view is also None where it cannot be made again.
    """
    view = view_of(source, search)
    if isinstance(view, Problem):
        return problem_line(source, search, view), None, None
    try:
        said, result = action(view)
    except FallowError as error:
        return error_line(view, error), None, None
    source.forget()
    now = view_of(source, search)
    return view.translate(said), result, None if isinstance(now, Problem) else now


ACK, SUPPRESS, REOPEN, NOTE = "ack", "suppress", "reopen", "note"
KINDS = (ACK, SUPPRESS, REOPEN, NOTE)
_IDS_A_LINE = 100
"""Of findings in the audit log."""

_DONE = {
    ACK: ("Acknowledged {number} finding", "Acknowledged {number} findings"),
    SUPPRESS: ("Suppressed {number} finding", "Suppressed {number} findings"),
    REOPEN: ("Reopened {number} finding", "Reopened {number} findings"),
    NOTE: ("Noted on {number} finding", "Noted on {number} findings"),
}


@dataclass(frozen=True)
class Wish:
    """What a reader wants done: about which findings, in which words, until which day.

    `seen` has by finding the id of the last action that their page showed.
    """

    kind: str
    ids: tuple[str, ...]
    text: str = ""
    until: str = ""
    seen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ActionOutcome:
    """What was recorded, in words for the reader, and what their page has seen by now."""

    done: tuple[Action, ...]
    said: str
    seen: dict[str, str]


def act(view: View, wish: Wish, now_ms: int) -> ActionOutcome:
    """Records the wish, on all of its findings or on none; where others acted meanwhile it records nothing and says so.

    Raises NotAllowedError for whoever may not act and for findings that the reader does not see, UsageError for a wish that
    lacks something, AuditError and LakeError where it cannot be written.
    """
    try:
        view.reader.require(PLANNER)
        ids = _own(view, wish.ids)
    except NotAllowedError:
        asked = ", ".join(plain(str(each)) for each in wish.ids)
        _audit(view, f"refused {wish.kind}", asked, REFUSED)
        raise
    reason, expires_ms = _reason(wish), _expires_ms(wish, now_ms)
    lake = view.whole.inputs.lake.require()
    before = load_actions(lake)
    news = _meanwhile(ids, wish, before)
    if news:
        return ActionOutcome((), _asked_again(news), {**wish.seen, **last_of(before, ids)})
    # what stands open already is not reopened: the record says only what somebody changed
    ids = [each for each in ids if wish.kind != REOPEN or status_of(before.get(each, ()), "", now_ms)]
    if not ids:
        return ActionOutcome((), tr("Nothing to reopen: it is neither acknowledged nor suppressed."), dict(wish.seen))
    at_ms = after_what_is_known(now_ms, ids, before)
    for at in range(0, len(ids), _IDS_A_LINE):
        _audit_first(view, wish.kind, ", ".join(ids[at : at + _IDS_A_LINE]), ACTION)
    done = record(lake, wish.kind, ids, view.reader.actor, now_ms=at_ms, reason=reason, expires_ms=expires_ms)
    for each in done:
        _audit(view, each.kind, f"{each.finding_id} ({each.action_id})", ACTION)
    known = _known_by_now(lake, before, done)
    return ActionOutcome(done, _told(wish, done, known), {**wish.seen, **last_of(known, ids)})


def _known_by_now(
    lake: Lake, before: Mapping[str, tuple[Action, ...]], done: Sequence[Action]
) -> Mapping[str, tuple[Action, ...]]:
    """Everybody's actions; where the lake does not answer any more, those of before and these: they are recorded all the same."""
    try:
        return load_actions(lake)
    except FallowError:
        own = {each.finding_id: (*before.get(each.finding_id, ()), each) for each in done}
        return {**before, **own}


def last_of(actions: Mapping[str, Sequence[Action]], ids: Iterable[str]) -> dict[str, str]:
    """The id of the last action that changes how each finding stands; nothing for findings without one."""
    changes = {each: [action for action in actions.get(each, ()) if action.kind != NOTE] for each in ids}
    return {each: own[-1].action_id for each, own in changes.items() if own}


def _own(view: View, ids: Iterable[str]) -> list[str]:
    """The ids if the reader sees all of them: the browser sends what it likes."""
    known = {finding.finding_id for finding in view.report.review.findings}
    wanted = list(dict.fromkeys(ids))
    strange = [each for each in wanted if each not in known]
    if strange:
        raise NotAllowedError(
            f"there is no finding {plain(str(strange[0]))} on your page", "load the page again: it may have ended"
        )
    if not wanted:
        raise UsageError("no finding is chosen", "choose one or more rows of the table")
    return wanted


def _reason(wish: Wish) -> str | None:
    text = wish.text.strip()
    if len(text) > LONGEST_REASON:
        raise UsageError("the text is too long", f"stay below {LONGEST_REASON:,} characters")
    if not text and wish.kind in (SUPPRESS, NOTE):
        what = "a reason" if wish.kind == SUPPRESS else "a text"
        raise UsageError(f"this takes {what}", "say it in a few words: others will read it")
    return text or None


def _expires_ms(wish: Wish, now_ms: int) -> int | None:
    """The end of a suppression, its last day inclusive; None is until somebody reopens it."""
    if wish.kind != SUPPRESS or not wish.until:
        return None
    expires_ms = parse_window(None, wish.until).until_ms
    if expires_ms is None or expires_ms <= now_ms:
        raise UsageError(f"{plain(wish.until)} has passed", "choose a day to come")
    return expires_ms


def _meanwhile(ids: Iterable[str], wish: Wish, now: Mapping[str, Sequence[Action]]) -> list[Action]:
    """What others did since the reader's page was made, the last of each finding; a note changes nothing for anybody."""
    if wish.kind == NOTE:
        return []
    last = last_of(now, ids)
    news = {action for each, action in last.items() if action != wish.seen.get(each, "")}
    return [action for each in last for action in now[each] if action.action_id in news]


def _asked_again(news: Sequence[Action]) -> SentenceList:
    what = [tr("{finding}: {what}", finding=each.finding_id, what=action_sentence(each)) for each in news]
    again = tr("Nothing is recorded yet: press the button again to do it all the same.")
    return SentenceList([tr("Somebody acted meanwhile."), *what, again], "\n")


def _told(wish: Wish, done: Sequence[Action], known: Mapping[str, Sequence[Action]]) -> SentenceList:
    """What was done, until when, and what somebody did at the very same time, which decides if it came later."""
    first = tr_many(*_DONE[wish.kind], len(done))
    expires_ms = done[0].expires_ms
    if expires_ms is not None:
        first = tr("{what} until {moment}", what=first, moment=Moment(expires_ms))
    later = [
        tr("{finding}: {what}, which came later and decides", finding=own.finding_id, what=action_sentence(each))
        for own in done
        for each in known[own.finding_id]
        if wish.kind != NOTE and each > own and each.kind in (ACK, SUPPRESS, REOPEN)
    ]
    return SentenceList([first, *later], "\n")


def annotations_in_sight(view: View) -> tuple[Annotation, ...]:
    """Those of the window about what the reader looks at, by their moment."""
    summary = view.report.ledger.summary
    return tuple(each for each in annotations_about(view) if summary.since_ms <= each.at_ms <= summary.until_ms)


def annotations_about(view: View) -> tuple[Annotation, ...]:
    """Those of whenever that are about everything or about what the reader looks at, by their moment.

    Of the whole fleet all pools and teams are looked at, also those of which there is nothing in the lake.
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
    """What the reader can annotate: everything, a pool or a team; a planner of one team has only that."""
    if view.reader.team is not None:
        return ((TEAM, view.reader.team),)
    return ((ALL, None), *((POOL, each) for each in view.names["pool"]), *((TEAM, each) for each in view.names["team"]))


def annotate(view: View, text: str, when: str, about: tuple[str, str | None], now_ms: int) -> Annotation:
    """Writes one; raises NotAllowedError for whoever may not, UsageError for what lacks something, LakeError."""
    _require_planner(view, "annotate")
    if about not in abouts(view):
        raise UsageError("it is not said what this is about", "everything, one pool or one team")
    at_ms = _moment_ms(view, when)
    lake = view.whole.inputs.lake.require()
    scope, name = about
    _audit_first(view, "annotate", "", ANNOTATION)
    added = add_annotation(lake, text, view.reader.actor, at_ms=at_ms, now_ms=now_ms, scope=scope, name=name)
    _audit(view, "annotate", added.annotation_id, ANNOTATION)
    return added


def withdraw(view: View, annotation_id: str, now_ms: int) -> Annotation:
    """Removes one that the reader could have written; raises as `annotate`, and FallowError where it is gone already."""
    what = "remove annotation"
    _require_planner(view, what)
    own = {each.annotation_id for each in annotations_in_sight(view) if can_withdraw(view, each)}
    if annotation_id not in own:
        _audit(view, f"refused {what}", plain(annotation_id), REFUSED)
        raise NotAllowedError("there is no such annotation on your page", "load the page again: it may be removed")
    _audit_first(view, what, annotation_id, ANNOTATION)
    gone = remove_annotation(view.whole.inputs.lake.require(), annotation_id, view.reader.actor, now_ms=now_ms)
    _audit(view, what, annotation_id, ANNOTATION)
    return gone


def can_withdraw(view: View, annotation: Annotation) -> bool:
    """Whether the reader may remove it: a planner, of one team only what is about that."""
    is_own = view.reader.team is None or (annotation.scope, annotation.name) == (TEAM, view.reader.team)
    return view.reader.may(PLANNER) and is_own


def _moment_ms(view: View, when: str) -> int:
    """`2026-11-20` or `2026-11-20 09:00` on the reader's clocks, unless it says its own offset."""
    try:
        local = datetime.fromisoformat(when.strip())
        return to_ms(local if local.tzinfo is not None else local.replace(tzinfo=view.zone))
    except (ValueError, OverflowError):
        raise UsageError(f"'{plain(when)}' is not a moment", "write it as 2026-11-20 09:00") from None


def may_save(view: View) -> bool:
    """Whether the reader may save scenarios: a planner of the whole fleet."""
    return view.reader.may(PLANNER) and view.reader.team is None


def record_scenario(view: View, name: str, policy: str, now_ms: int) -> SavedScenario:
    """Saves a scenario; raises NotAllowedError for whoever may not, UsageError for a name that is none, LakeError."""
    _require_saving(view, "save scenario")
    _audit_first(view, "save scenario", plain(name), SCENARIO)
    saved = save_scenario(view.whole.inputs.lake.require(), name, policy, view.reader.actor, now_ms=now_ms)
    _audit(view, "save scenario", plain(saved.name), SCENARIO)
    return saved


def withdraw_scenario(view: View, name: str, now_ms: int) -> SavedScenario:
    """Removes a scenario; raises as `record_scenario`, and FallowError where there is none of that name."""
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
    """Writes down what is about to be done; raises AuditError where it cannot, and then it must not be done."""
    audit_first(view.reader.actor, in_role(view.reader, f"asks to {what}", about), event)


def _audit(view: View, what: str, about: str, event: str) -> None:
    audit(view.reader.actor, in_role(view.reader, what, about), event)
