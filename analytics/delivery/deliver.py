"""One delivery from the look at what is recorded to the record of how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analytics.delivery.journal import ABANDONED, CLAIMED, SENDING, Journal, Standing, new_try
from analytics.delivery.model import FAILED, SENT, UNKNOWN, Outcome
from analytics.delivery.sender_lock import claim
from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.delivery.journal import Delivery
    from analytics.delivery.model import Channel, Parcel
    from fallow.clock import Clock

ALREADY, BUSY = "already", "busy"
"""What needs no sending: it was sent before; somebody else is at it."""

_LOST = "a sender ended in the middle of it"


@dataclass(frozen=True)
class Result:
    """What became of one delivery in this run: a step, ALREADY or BUSY. `is_news` where nobody was told of it before."""

    delivery: Delivery
    step: str
    reason: str = ""
    is_news: bool = True

    @property
    def is_failure(self) -> bool:
        """Whether a person should look: it did not arrive, or it only now became unknown whether it did."""
        return self.step == FAILED or (self.step == UNKNOWN and self.is_news)


def to_do(standing: Standing, *, again: bool, repeatable: bool) -> Delivery | None:
    """The round that is to be sent now; None where there is nothing to do without a person's word."""
    if standing.step == SENT:
        return replace(standing.delivery, round=standing.delivery.round + 1) if again else None
    if standing.step in (UNKNOWN, ABANDONED):
        # the same round, so that whoever got it can tell the second as a duplicate
        return standing.delivery if again or repeatable else None
    return None if standing.step in (SENDING, CLAIMED) else standing.delivery


def deliver(
    journal: Journal,
    delivery: Delivery,
    parcel: Parcel,
    channel: Channel,
    clock: Clock,
    *,
    again: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Sends it unless it was sent, and records every step; raises LakeError where the record cannot be kept.

    What is to happen is in the lake before the first word goes out: a crash leaves a delivery that is named as unknown, and
    nothing is ever sent twice because its record was lost.
    """
    standing = journal.standing(delivery)
    chosen = to_do(standing, again=again, repeatable=channel.repeatable)
    if chosen is None:
        return left(journal, standing)
    own = claim(journal, chosen, parcel, clock, sleep)
    if own is None:
        return Result(chosen, BUSY)
    journal.add(chosen, own.try_id, SENDING, parcel)
    if own.is_fresh:
        outcome = channel.send(parcel, chosen, clock.now_ms())
    else:
        outcome = Outcome(FAILED, "the lake took too long to record that it would be sent", tries=0)
    try:
        journal.add(chosen, own.try_id, outcome.step, parcel, outcome)
    except FallowError as error:
        raise FallowError(
            f"{_ENDED[outcome.step]} {chosen.target}, and that could not be recorded: {error.message}",
            "mend the lake; until --again this delivery counts as unknown",
        ) from error
    return Result(chosen, outcome.step, outcome.reason)


_ENDED = {SENT: "it was sent to", FAILED: "it could not be sent to", UNKNOWN: "it may have reached"}


def left(journal: Journal, standing: Standing) -> Result:
    """What to say of a delivery that is left alone; one that nobody ended is recorded as unknown, once."""
    reason = standing.entry.reason if standing.entry else ""
    if standing.step == ABANDONED:
        lost = Outcome(UNKNOWN, _LOST, tries=0)
        try_id = standing.entry.try_id if standing.entry else new_try(0)
        journal.add(standing.delivery, try_id, UNKNOWN, outcome=lost)
        return Result(standing.delivery, UNKNOWN, _LOST)
    if standing.step == UNKNOWN:
        return Result(standing.delivery, UNKNOWN, reason, is_news=False)
    return Result(standing.delivery, ALREADY if standing.step == SENT else BUSY, reason)
