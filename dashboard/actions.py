"""What planners do about findings on the pages: recorded as `fallow findings ack|suppress|reopen|note` records it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from analytics.decide.actions import LONGEST_REASON, Action, after_what_is_known, load_actions, record
from analytics.decide.lifecycle import action_sentence, status_of
from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Moment
from analytics.language.sentences import tr, tr_many
from dashboard.access.audit import ACTION, REFUSED, audit, audit_first, in_role
from dashboard.access.people import PLANNER, NotAllowedError
from dashboard.view import View
from fallow.clock import parse_window
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake

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
        audit(view.reader.actor, in_role(view.reader, f"refused {wish.kind}", asked), REFUSED)
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
    actor = view.reader.actor
    for at in range(0, len(ids), _IDS_A_LINE):
        some = ", ".join(ids[at : at + _IDS_A_LINE])
        audit_first(view.reader.actor, in_role(view.reader, f"asks to {wish.kind}", some), ACTION)
    done = record(lake, wish.kind, ids, actor, now_ms=at_ms, reason=reason, expires_ms=expires_ms)
    for each in done:
        audit(view.reader.actor, in_role(view.reader, each.kind, f"{each.finding_id} ({each.action_id})"), ACTION)
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
