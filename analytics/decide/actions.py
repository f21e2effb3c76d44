"""What people did about findings: rows that are only ever added, in files of the lake that nobody else writes.

Several people may act at once, on one machine or many, without asking each other (analytics.decide.added_rows). Where they
disagree the later action decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analytics.decide.added_rows import add_rows, file_number
from analytics.frames import read_frame
from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from fallow import schema
from fallow.clock import format_ms
from fallow.errors import UsageError
from fallow.lake import Lake
from fallow.os_user import login_name

KINDS = ("ack", "suppress", "reopen", "notify", "note")


@dataclass(frozen=True, order=True)
class Action:
    """One thing that one person did about one finding."""

    time_ms: int
    action_id: str
    finding_id: str
    kind: str
    actor: str
    reason: str | None = None
    expires_ms: int | None = None
    channel: str | None = None
    os_user: str | None = None

    @property
    def by(self) -> str:
        """Who it was."""
        return actor_words(self.actor, self.os_user)

    def as_json(self) -> dict[str, object]:
        """As JSON values, with the columns of the `action` table."""
        return {
            "time": format_ms(self.time_ms),
            "action_id": self.action_id,
            "finding_id": self.finding_id,
            "kind": self.kind,
            "actor": self.actor,
            "reason": self.reason,
            "expires": None if self.expires_ms is None else format_ms(self.expires_ms),
            "channel": self.channel,
            "os_user": self.os_user,
        }


def record(
    lake: Lake,
    kind: str,
    finding_ids: Iterable[str],
    actor: str,
    *,
    now_ms: int,
    reason: str | None = None,
    expires_ms: int | None = None,
    channel: str | None = None,
    once: str = "",
    os_user: str | None = None,
) -> tuple[Action, ...]:
    """Adds one action on each of the findings, all of them or none, and returns them; raises LakeError.

    Whoever records the same `once` at the same moment, on this host or another, has recorded one thing. Commands give the
    `os_user` that they run as: anybody can write any actor behind --as.
    """
    number = file_number(now_ms, once)
    key = hashlib.sha256(once.encode()).hexdigest()[:16] if once else f"{number:x}"
    actions = tuple(
        Action(now_ms, f"A-{key}-{place}", finding_id, kind, actor, reason, expires_ms, channel, os_user)
        for place, finding_id in enumerate(dict.fromkeys(finding_ids))
    )
    rows: list[dict[str, object]] = [
        {
            "time": each.time_ms,
            "action_id": each.action_id,
            "finding_id": each.finding_id,
            "kind": each.kind,
            "actor": each.actor,
            "reason": each.reason,
            "expires": each.expires_ms,
            "channel": each.channel,
            "os_user": each.os_user,
        }
        for each in actions
    ]
    add_rows(lake, schema.ACTION, rows, now_ms, number)
    return actions


def load_actions(lake: Lake) -> Mapping[str, tuple[Action, ...]]:
    """Every action by finding, the earliest first; raises LakeError."""
    rows = read_frame(lake.files(schema.ACTION.name), schema.ACTION).drop("host")
    # two hosts that recorded one thing at the same moment have a file each
    frame = rows.sort("time", "actor").unique("action_id", keep="first", maintain_order=True)
    found: dict[str, list[Action]] = {}
    for row in frame.rename({"time": "time_ms", "expires": "expires_ms"}).iter_rows(named=True):
        found.setdefault(row["finding_id"], []).append(Action(**row))
    order = {each: sorted(own, key=lambda action: (action.time_ms, action.action_id)) for each, own in found.items()}
    return {finding_id: tuple(own) for finding_id, own in order.items()}


def after_what_is_known(now_ms: int, ids: Iterable[str], actions: Mapping[str, Sequence[Action]]) -> int:
    """The time of an action: now, and in any case after those that whoever acts has seen, whatever clock wrote them."""
    return max([now_ms, *(each.time_ms + 1 for finding_id in ids for each in actions.get(finding_id, ()))])


def actor_words(actor: str, os_user: str | None) -> str:
    """`alice`, or `alice (as OS user root)` where a command ran as somebody else than it said."""
    if os_user is None or os_user == actor:
        return plain(actor)
    return tr("{actor} (as OS user {os_user})", actor=plain(actor), os_user=plain(os_user))


def actor_name(given: str | None) -> str:
    """The name that an action is recorded under: the given one, else the login name; UsageError where there is none."""
    name = " ".join((given if given is not None else login_name() or "").split())
    if not name:
        raise UsageError("your user name is not known", "give --as NAME")
    return name
