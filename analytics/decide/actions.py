"""What people did about findings. Rows are only added: each action is one immutable file of the lake with one writer.

Several people may act at once, on one machine or many, without coordination. If they disagree, the later action
decides. A file's sequence number is the moment followed by twelve random digits, the same at both ends of its range, so
that no file hides another. An action that must be written only once takes these digits from its name, so that a second
write at the same moment is the same file.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.frames import read_frame
from analytics.language.sentences import plain, tr
from fallow import parquet, schema
from fallow.actors import ANONYMOUS, LINK, PERSON, TOKEN, Actor, actor_of, shown_name
from fallow.clock import DAY_MS, utc_day
from fallow.errors import UsageError
from fallow.lake import Lake, LakeFile
from fallow.schema import LakeTable

_RANDOM = 10**12


def file_number(now_ms: int, once: str = "") -> int:
    """Return the sequence number of a file written now; ids of its rows use it.

    For the same `once` it is the same all day.
    """
    if not once:
        return now_ms * _RANDOM + secrets.randbelow(_RANDOM)
    digits = int(hashlib.sha256(once.encode()).hexdigest(), 16) % (DAY_MS * _RANDOM)
    return now_ms // DAY_MS * DAY_MS * _RANDOM + digits


def add_rows(lake: Lake, table: LakeTable, rows: Sequence[Mapping[str, object]], now_ms: int, number: int) -> LakeFile:
    """Add all rows or none, and return their file. It is in the lake when the function returns. Raises LakeError."""
    file = LakeFile(table.name, utc_day(now_ms), socket.gethostname() or "unnamed", number, number)
    return lake.put_confirmed(file, parquet.encode(table, parquet.table_from_rows(table, rows)))


def added_rows(lake: Lake, table: LakeTable, *, strict: bool = False) -> pl.DataFrame:
    """Return every added row, with times as integer milliseconds in `time_ms`.

    Unreadable files are left out, or raise an error if `strict`.
    """
    files = lake.files(table.name)
    rows = read_frame(files, table, None, None if strict else lake.left_out.leave_out)
    return rows.drop("host").rename({"time": "time_ms"})


KINDS = ("ack", "snooze", "reopen", "notify", "note")


LONGEST_REASON = 2000
"""Most characters of a reason or note: other people read it beside a finding."""

_KINDS = {TOKEN: tr("a program's token"), LINK: tr("by a link"), ANONYMOUS: tr("without a sign-in")}


@dataclass(frozen=True, order=True)
class Action:
    """One action of one person on one finding."""

    time_ms: int
    action_id: str
    finding_id: str
    kind: str
    actor: Actor
    reason: str | None = None
    expires_ms: int | None = None
    channel: str | None = None

    @property
    def by(self) -> str:
        return actor_words(self.actor)

    def row(self) -> dict[str, object]:
        """Return a row of the `action` table, with times as integer milliseconds."""
        return {
            "time": self.time_ms,
            "action_id": self.action_id,
            "finding_id": self.finding_id,
            "kind": self.kind,
            **self.actor.columns(),
            "reason": self.reason,
            "expires": self.expires_ms,
            "channel": self.channel,
        }


def record(
    lake: Lake,
    kind: str,
    finding_ids: Iterable[str],
    actor: Actor,
    *,
    now_ms: int,
    reason: str | None = None,
    expires_ms: int | None = None,
    channel: str | None = None,
    once: str = "",
) -> tuple[Action, ...]:
    """Add one action to each of the findings, all or none, and return the actions.

    Two records with the same `once` at the same moment are one, on this host or another.

    Raises UsageError for a reason that is too long, and LakeError.
    """
    if reason is not None and len(reason) > LONGEST_REASON:
        raise UsageError("the text is too long", f"stay below {LONGEST_REASON:,} characters")
    number = file_number(now_ms, once)
    key = hashlib.sha256(once.encode()).hexdigest()[:16] if once else f"{number:x}"
    actions = tuple(
        Action(now_ms, f"A-{key}-{place}", finding_id, kind, actor, reason, expires_ms, channel)
        for place, finding_id in enumerate(dict.fromkeys(finding_ids))
    )
    add_rows(lake, schema.ACTION, [each.row() for each in actions], now_ms, number)
    return actions


def load_actions(lake: Lake, *, strict: bool = False) -> Mapping[str, tuple[Action, ...]]:
    """Return every action by finding, the earliest first. Raises LakeError.

    Unreadable files are left out, or raise an error if `strict`.
    """
    # two hosts that recorded one thing at the same moment have a file each
    rows = added_rows(lake, schema.ACTION, strict=strict).sort("time_ms", "actor")
    frame = rows.unique("action_id", keep="first", maintain_order=True)
    found: dict[str, list[Action]] = {}
    for row in frame.rename({"expires": "expires_ms"}).iter_rows(named=True):
        found.setdefault(row["finding_id"], []).append(Action(actor=actor_of(row), **row))
    order = {each: sorted(own, key=lambda action: (action.time_ms, action.action_id)) for each, own in found.items()}
    return {finding_id: tuple(own) for finding_id, own in order.items()}


def after_what_is_known(now_ms: int, ids: Iterable[str], actions: Mapping[str, Sequence[Action]]) -> int:
    """Return an action's time: now, but later than every known action on these ids, whatever clock wrote it."""
    return max([now_ms, *(each.time_ms + 1 for finding_id in ids for each in actions.get(finding_id, ()))])


def actor_words(actor: Actor) -> str:
    """Return the actor: `alice`, `alice (as OS user root)` if the names differ, or `everybody (anonymous)`."""
    name = shown_name(actor.name)
    if actor.kind != PERSON:
        return tr("{actor} ({kind})", actor=name, kind=_KINDS.get(actor.kind, actor.kind))
    if actor.os_user in (None, actor.name):
        return name
    return tr("{actor} (as OS user {os_user})", actor=name, os_user=plain(str(actor.os_user)))
