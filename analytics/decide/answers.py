"""What somebody who was asked about GPUs answers by a link, and its record among the actions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo

from analytics.decide.actions import Action, after_what_is_known, load_actions, record
from analytics.decide.deadlines import end_of_day_ms
from analytics.decide.lifecycle import RELEASED
from analytics.language.plain_text import plain
from analytics.language.quantities import Date
from analytics.language.sentences import tr
from analytics.workloads.waste import RELEASE
from fallow.actors import LINK, Actor
from fallow.clock import from_ms
from fallow.errors import UsageError
from fallow.lake import Lake

KEEP, DONE = "keep", "done"
"""Still needed, until a day; given back, or changed as it was asked."""

VERBS = (KEEP, DONE)
LONGEST_DAYS = 28
"""How long a link may keep GPUs: four weekly reports. Whoever needs them longer is asked again."""

LONGEST_REASON = 200
_CHANGED = "changed"


@dataclass(frozen=True)
class Answer:
    """What one link may say: one verb about one ask, by one addressee. `gpu_count` counts those beyond `gpus` too."""

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
        """Return the holder of the link: a link can be passed on."""
        return Actor(self.addressee, LINK)

    @property
    def channel(self) -> str:
        """What its record names as the way it came: the same for this very link, and for no other."""
        said = (self.verb, *sorted(self.finding_ids), self.addressee, str(self.expires_ms))
        return "link " + hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def recorded(answer: Answer, actions: Mapping[str, Sequence[Action]]) -> Action | None:
    """What this link has said before; None where it was not used yet."""
    own = (each for finding_id in answer.finding_ids for each in actions.get(finding_id, ()))
    return next((each for each in own if (each.channel, each.actor) == (answer.channel, answer.actor)), None)


def keep_until_ms(text: str, now_ms: int, zone: tzinfo) -> int:
    """The end of a day `YYYY-MM-DD` of the zone, exclusive; UsageError unless it is one of the next LONGEST_DAYS or today."""
    first, last = days_to_keep(now_ms, zone)
    wrong = UsageError(tr("Choose a day from {first} to {last}.", first=Date(first), last=Date(last)))
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise wrong from None
    if not first <= day <= last:
        raise wrong
    return end_of_day_ms(day, zone)


def days_to_keep(now_ms: int, zone: tzinfo) -> tuple[date, date]:
    """The first and the last day that may be chosen."""
    today = from_ms(now_ms).astimezone(zone).date()
    return today, today + timedelta(days=LONGEST_DAYS)


def record_answer(lake: Lake, answer: Answer, *, now_ms: int, until_ms: int | None = None, reason: str = "") -> Action:
    """Records it once, on all findings of the ask; a second call returns what was recorded first. Raises LakeError."""
    actions = load_actions(lake)
    if (before := recorded(answer, actions)) is not None:
        return before
    at_ms = after_what_is_known(now_ms, answer.finding_ids, actions)
    if answer.verb == KEEP:
        kind, said = "suppress", plain(reason, LONGEST_REASON) or "still needed"
    else:
        kind, said, until_ms = "ack", RELEASED if answer.action == RELEASE else _CHANGED, None
    done = record(
        lake,
        kind,
        answer.finding_ids,
        answer.actor,
        now_ms=at_ms,
        reason=said,
        expires_ms=until_ms,
        channel=answer.channel,
        once=answer.channel,
    )
    return done[0]
