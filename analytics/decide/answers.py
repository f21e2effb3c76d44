"""Answers to nudges by link, and their record among the actions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo

from analytics.decide.actions import Action, after_what_is_known, load_actions, record
from analytics.decide.lifecycle import RELEASED
from analytics.language.sentences import Date, plain, tr
from analytics.workloads.waste import RELEASE
from fallow.actors import LINK, Actor
from fallow.clock import from_ms, start_of_day_ms
from fallow.errors import UsageError
from fallow.lake import Lake

KEEP, DONE = "keep", "done"
"""Verbs of an answer: still needed until a day, or done (released, or changed as requested)."""

VERBS = (KEEP, DONE)
LONGEST_DAYS = 28
"""Most days that a link may keep GPUs: four weekly reports. After that the user gets another nudge."""

LONGEST_REASON = 200
_CHANGED = "changed"


@dataclass(frozen=True)
class Answer:
    """The answer of one link: one verb about one nudge item, by one addressee.

    `gpu_count` also counts GPUs beyond `gpus`.
    """

    verb: str
    finding_ids: tuple[str, ...]
    addressee: str
    action: str
    gpus: tuple[str, ...]
    gpu_count: int
    host: str
    simulated: bool
    language: str
    expires_ms: int

    @property
    def actor(self) -> Actor:
        """Return the user of the link: a link can be passed on."""
        return Actor(self.addressee, LINK)

    @property
    def channel(self) -> str:
        """Return the channel in the record, which is unique for this link."""
        content = (self.verb, *sorted(self.finding_ids), self.addressee, str(self.expires_ms))
        return "link " + hashlib.sha256("\0".join(content).encode()).hexdigest()[:16]


def recorded(answer: Answer, actions: Mapping[str, Sequence[Action]]) -> Action | None:
    """Return the recorded answer of this link; None if the link is unused."""
    own = (each for finding_id in answer.finding_ids for each in actions.get(finding_id, ()))
    return next((each for each in own if (each.channel, each.actor) == (answer.channel, answer.actor)), None)


def keep_until_ms(text: str, now_ms: int, zone: tzinfo) -> int:
    """Return the end of the day `YYYY-MM-DD` in the zone, exclusive.

    Raises UsageError unless it is today or one of the next LONGEST_DAYS days.
    """
    first, last = days_to_keep(now_ms, zone)
    wrong = UsageError(tr("Choose a day from {first} to {last}.", first=Date(first), last=Date(last)))
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise wrong from None
    if not first <= day <= last:
        raise wrong
    return start_of_day_ms(day + timedelta(days=1), zone)


def days_to_keep(now_ms: int, zone: tzinfo) -> tuple[date, date]:
    """Return the first and the last day that may be chosen."""
    today = from_ms(now_ms).astimezone(zone).date()
    return today, today + timedelta(days=LONGEST_DAYS)


def record_answer(lake: Lake, answer: Answer, *, now_ms: int, until_ms: int | None = None, reason: str = "") -> Action:
    """Record the answer once, on all findings of the item. A second call returns the first record. Raises LakeError."""
    actions = load_actions(lake)
    if (before := recorded(answer, actions)) is not None:
        return before
    at_ms = after_what_is_known(now_ms, answer.finding_ids, actions)
    if answer.verb == KEEP:
        kind, stated = "snooze", plain(reason, LONGEST_REASON) or "still needed"
    else:
        kind, stated, until_ms = "ack", RELEASED if answer.action == RELEASE else _CHANGED, None
    done = record(
        lake,
        kind,
        answer.finding_ids,
        answer.actor,
        now_ms=at_ms,
        reason=stated,
        expires_ms=until_ms,
        channel=answer.channel,
        once=answer.channel,
    )
    return done[0]
