"""Deciding which of several senders sends, on a store that knows no conditional write.

Everybody writes a claim first and looks second, so that of two at least one sees the other: whoever sees nobody sends;
whoever sees a lower claim yields, and says so; the lowest waits until every other has yielded, and yields itself as soon as
one of them is sending. Nobody who has yielded sends, so two never send, as long as the store shows what was written (object
stores and local file systems do; NFS within its attribute cache's time) and no sender sleeps through LEASE_MS between its
look and its first word to the receiver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.delivery.journal import ABANDONED, CLAIMED, LEASE_MS, SENDING, YIELDED, new_try
from analytics.delivery.model import SENT, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from analytics.delivery.journal import Delivery, Journal
    from analytics.delivery.model import Parcel
    from fallow.clock import Clock

WAIT_S = 20.0
"""How long the lowest waits for the others' word; they give it right after their look."""

_PAUSE_S = 0.25


class Claim:
    """The right to send one delivery, for as long as it is fresh."""

    def __init__(self, try_id: str, clock: Clock) -> None:
        self.try_id = try_id
        self._clock, self._until_s = clock, clock.monotonic_s() + LEASE_MS / 3000

    @property
    def is_fresh(self) -> bool:
        """Whether there is time enough left that nobody takes it for abandoned while this process sends."""
        return self._clock.monotonic_s() < self._until_s


def claim(
    journal: Journal, delivery: Delivery, parcel: Parcel, clock: Clock, sleep: Callable[[float], None]
) -> Claim | None:
    """The right to send, or None where somebody else has it; raises LakeError."""
    before = journal.steps(delivery)
    own = Claim(new_try(clock.now_ms()), clock)
    journal.add(delivery, own.try_id, CLAIMED, parcel)
    until_s = clock.monotonic_s() + WAIT_S
    while True:
        journal.look_again()
        others = _others(journal.steps(delivery), before, own.try_id)
        if not others:
            return own
        decided = any(step != CLAIMED for step in others.values())
        if decided or min(others) < own.try_id or clock.monotonic_s() >= until_s:
            journal.add(delivery, own.try_id, YIELDED, parcel)
            return None
        sleep(_PAUSE_S)


def _others(steps: Mapping[str, str], before: Mapping[str, str], own: str) -> dict[str, str]:
    """The tries that stand in the way: those that go on or arrived, and those that may have arrived since the decision to send."""
    doubt = (UNKNOWN, ABANDONED)
    return {
        name: step
        for name, step in steps.items()
        if name != own and (step in (CLAIMED, SENDING, SENT) or (step in doubt and before.get(name) not in doubt))
    }
