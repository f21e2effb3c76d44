"""The record of everything sent: rows of the lake's table `delivery`, which are only added.

Each row is a file with a name that no other writer can choose. All rows about one delivery together give its state.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analytics.decide.actions import add_rows, file_number
from analytics.delivery.model import FAILED, SENT, UNKNOWN, Delivery, DeliveryOutcome, Message
from analytics.frames import read_frame
from fallow import schema
from fallow.actors import Actor
from fallow.clock import DAY_MS, MINUTE_MS, Clock, utc_day
from fallow.lake import Lake

QUEUED, YIELDED, SENDING = "queued", "yielded", "sending"
ABANDONED = "abandoned"
"""A state and not a step: a sender began and never recorded the outcome."""

LEASE_MS = 15 * MINUTE_MS
"""Time after which a step QUEUED or SENDING without a later step is abandoned.

A channel may take less than half of it.
"""

_ENDS = (SENT, UNKNOWN, FAILED)


@dataclass(frozen=True)
class Entry:
    time_ms: int
    delivery: Delivery
    try_id: str
    step: str
    reason: str
    finding_ids: tuple[str, ...]


@dataclass(frozen=True)
class DeliveryStatus:
    """The state of a delivery: a step, ABANDONED, or "" if no sender began. `entry` is the row that decides."""

    step: str
    delivery: Delivery
    entry: Entry | None = None


class Journal:
    """The rows read so far and those that this process adds. Files never change, so each file is read once."""

    def __init__(self, lake: Lake, clock: Clock, actor: Actor, since_ms: int) -> None:
        """`since_ms` is the oldest day to read."""
        self._lake, self._clock, self._actor = lake, clock, actor
        self._since_day = utc_day(since_ms)
        self._read: set[str] = set()
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        self._refresh(None)

    @property
    def actor(self) -> Actor:
        return self._actor

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for entries in self._entries.values() for entry in entries)

    def look_again(self) -> None:
        """Read rows that others have added recently; clocks may differ by a day."""
        now_ms = self._clock.now_ms()
        self._refresh({utc_day(now_ms + days * DAY_MS) for days in (-1, 0, 1)})

    def tries(self, delivery: Delivery) -> dict[str, list[Entry]]:
        """Return the rows about one round of a delivery, by try, in the order of its steps."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in sorted(self._entries[delivery.delivery_id], key=lambda each: each.time_ms):
            found[entry.try_id].append(entry)
        return found

    def state(self, delivery: Delivery) -> DeliveryStatus:
        """Return the state of the newest round of a delivery."""
        newest = delivery
        while self._entries.get(replace(newest, round=newest.round + 1).delivery_id):
            newest = replace(newest, round=newest.round + 1)
        found = {step: entry for rows in self.tries(newest).values() for step, entry in [self._step(rows)]}
        # what arrived decides, then what may have arrived, then who is sending
        for step in (SENT, UNKNOWN, ABANDONED, SENDING, QUEUED, FAILED):
            if step in found:
                return DeliveryStatus(step, newest, found[step])
        return DeliveryStatus("", newest)

    def steps(self, delivery: Delivery) -> dict[str, str]:
        """Return the last step of each try of one round."""
        return {name: self._step(rows)[0] for name, rows in self.tries(delivery).items()}

    def _step(self, rows: Sequence[Entry]) -> tuple[str, Entry]:
        """Return the last step of one try. A QUEUED without a later step counts as YIELDED."""
        steps = {row.step: row for row in rows}
        for step in (*_ENDS, YIELDED):
            if step in steps:
                return step, steps[step]
        over = max(row.time_ms for row in rows) + LEASE_MS <= self._clock.now_ms()
        if SENDING in steps:
            return (ABANDONED if over else SENDING), steps[SENDING]
        return (YIELDED if over else QUEUED), rows[-1]

    def add(
        self,
        delivery: Delivery,
        try_id: str,
        step: str,
        message: Message | None = None,
        outcome: DeliveryOutcome | None = None,
    ) -> None:
        """Write one row. It is in the lake when the function returns. Raises LakeError."""
        now_ms = self._clock.now_ms()
        row: dict[str, object] = {
            "time": now_ms,
            "delivery_id": delivery.delivery_id,
            "try_id": try_id,
            "step": step,
            "purpose": delivery.purpose,
            "week": delivery.week,
            "edition": delivery.edition,
            "round": delivery.round,
            "target": delivery.target,
            **self._actor.columns(),
            "content_sha256": message.sha256 if message else None,
            "content_bytes": message.size_bytes if message else None,
            "tries": outcome.tries if outcome else None,
            "reason": outcome.reason or None if outcome else None,
            "finding_ids": list(message.finding_ids) if message else [],
        }
        self._read.add(add_rows(self._lake, schema.DELIVERY, [row], now_ms, file_number(now_ms)).key)
        self._keep(row | {"time_ms": now_ms})

    def _refresh(self, dates: set[str] | None) -> None:
        files = self._lake.files(schema.DELIVERY.name, dates=dates)
        fresh = [file for file in files if file.date >= self._since_day and file.key not in self._read]
        for row in read_frame(fresh, schema.DELIVERY).rename({"time": "time_ms"}).iter_rows(named=True):
            self._keep(row)
        self._read.update(file.key for file in fresh)

    def _keep(self, row: dict[str, object]) -> None:
        # every column of the key is text or a number in whatever was written by a fallow
        delivery = Delivery(
            str(row["purpose"]), str(row["week"]), str(row["edition"]), str(row["target"]), _whole(row["round"])
        )
        findings = row["finding_ids"]
        entry = Entry(
            time_ms=_whole(row["time_ms"]),
            delivery=delivery,
            try_id=str(row["try_id"]),
            step=str(row["step"]),
            reason=str(row["reason"] or ""),
            finding_ids=tuple(map(str, findings)) if isinstance(findings, list) else (),
        )
        self._entries[str(row["delivery_id"])].append(entry)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def new_try(now_ms: int) -> str:
    """Return a unique name. Of two names, the one that began first is usually the lower."""
    return f"{now_ms:012x}-{secrets.token_hex(8)}"
