"""One delivery, from its record so far to the record of its outcome, and the printed lines about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from analytics.delivery.journal import ABANDONED, LEASE_MS, QUEUED, SENDING, YIELDED, DeliveryStatus, Journal, new_try
from analytics.delivery.model import FAILED, SENT, UNKNOWN, Channel, Delivery, DeliveryOutcome, Message
from analytics.language.sentences import moment, plain
from fallow.clock import Clock
from fallow.errors import FallowError
from fallow.output import say, show
from fallow.units import format_bytes

WAIT_S = 20.0
"""Time that the sender with the lowest id waits for the others to yield.

They yield right after they read the record.
"""

_PAUSE_S = 0.25


class SendLock:
    """The right to send one delivery, while it is fresh."""

    def __init__(self, try_id: str, clock: Clock) -> None:
        self.try_id = try_id
        self._clock, self._until_s = clock, clock.monotonic_s() + LEASE_MS / 3000

    @property
    def is_fresh(self) -> bool:
        """Return True if enough time remains to send before others treat the delivery as abandoned."""
        return self._clock.monotonic_s() < self._until_s


def acquire_send_lock(
    journal: Journal, delivery: Delivery, message: Message, clock: Clock, sleep: Callable[[float], None]
) -> SendLock | None:
    """Return the right to send, or None if another sender has it. Raises LakeError.

    The store has no conditional write, so senders write first and read second: each adds QUEUED and then reads what
    others have added. A sender that reads no other entry sends. One that reads a lower id yields and records it. The
    lowest waits until all others have yielded, and yields itself as soon as one of them is sending. Of two senders at
    least one reads the other's entry, and a sender that has yielded never sends, so two never send. This holds if the
    store shows what was written (object stores and local file systems do, NFS within the time of its attribute cache)
    and no sender sleeps longer than LEASE_MS between reading and sending.
    """
    before = journal.steps(delivery)
    own = SendLock(new_try(clock.now_ms()), clock)
    journal.add(delivery, own.try_id, QUEUED, message)
    until_s = clock.monotonic_s() + WAIT_S
    while True:
        journal.look_again()
        others = _others(journal.steps(delivery), before, own.try_id)
        if not others:
            return own
        decided = any(step != QUEUED for step in others.values())
        if decided or min(others) < own.try_id or clock.monotonic_s() >= until_s:
            journal.add(delivery, own.try_id, YIELDED, message)
            return None
        sleep(_PAUSE_S)


def _others(steps: Mapping[str, str], before: Mapping[str, str], own: str) -> dict[str, str]:
    """Return the tries that prevent sending.

    They are still running or have arrived, or may have arrived since the decision to send.
    """
    doubt = (UNKNOWN, ABANDONED)
    return {
        name: step
        for name, step in steps.items()
        if name != own and (step in (QUEUED, SENDING, SENT) or (step in doubt and before.get(name) not in doubt))
    }


ALREADY, BUSY = "already", "busy"
"""Outcomes without sending: sent before, or another sender is sending."""

_LOST = "a sender ended while it was sending"


@dataclass(frozen=True)
class DeliveryResult:
    """The outcome of one delivery in this run: a step, ALREADY or BUSY. `is_news` if it was not reported before."""

    delivery: Delivery
    step: str
    reason: str = ""
    is_news: bool = True

    @property
    def is_failure(self) -> bool:
        """Return True if a person should check: it did not arrive, or it has just become unknown whether it arrived."""
        return self.step == FAILED or (self.step == UNKNOWN and self.is_news)


def to_do(state: DeliveryStatus, *, again: bool, repeatable: bool) -> Delivery | None:
    """Return the round to send now; None if sending needs a person's decision."""
    if state.step == SENT:
        return replace(state.delivery, round=state.delivery.round + 1) if again else None
    if state.step in (UNKNOWN, ABANDONED):
        # the same round, so that a recipient recognises the second one as a duplicate
        return state.delivery if again or repeatable else None
    return None if state.step in (SENDING, QUEUED) else state.delivery


def deliver(
    journal: Journal,
    delivery: Delivery,
    message: Message,
    channel: Channel,
    clock: Clock,
    *,
    again: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> DeliveryResult:
    """Send unless it was sent before, and record every step. Raises LakeError if the record cannot be written.

    The intention is in the lake before sending: after a crash the outcome is unknown, and no delivery is sent twice
    because its record was lost.
    """
    state = journal.state(delivery)
    chosen = to_do(state, again=again, repeatable=channel.repeatable)
    if chosen is None:
        return left(journal, state)
    own = acquire_send_lock(journal, chosen, message, clock, sleep)
    if own is None:
        return DeliveryResult(chosen, BUSY)
    journal.add(chosen, own.try_id, SENDING, message)
    if own.is_fresh:
        outcome = channel.send(message, chosen, clock.now_ms())
    else:
        outcome = DeliveryOutcome(FAILED, "the lake took too long to record that it would be sent", tries=0)
    try:
        journal.add(chosen, own.try_id, outcome.step, message, outcome)
    except FallowError as error:
        raise FallowError(
            f"{_ENDED[outcome.step]} {chosen.target}, and that could not be recorded: {error.message}",
            "repair the lake; until --again this delivery counts as unknown",
        ) from error
    return DeliveryResult(chosen, outcome.step, outcome.reason)


_ENDED = {SENT: "it was sent to", FAILED: "it could not be sent to", UNKNOWN: "it may have reached"}


def left(journal: Journal, state: DeliveryStatus) -> DeliveryResult:
    """Return the result of a delivery that is not sent now. An abandoned one is recorded as unknown, once."""
    reason = state.entry.reason if state.entry else ""
    if state.step == ABANDONED:
        lost = DeliveryOutcome(UNKNOWN, _LOST, tries=0)
        try_id = state.entry.try_id if state.entry else new_try(0)
        journal.add(state.delivery, try_id, UNKNOWN, outcome=lost)
        return DeliveryResult(state.delivery, UNKNOWN, _LOST)
    if state.step == UNKNOWN:
        return DeliveryResult(state.delivery, UNKNOWN, reason, is_news=False)
    return DeliveryResult(state.delivery, ALREADY if state.step == SENT else BUSY, reason)


def tell(result: DeliveryResult) -> int:
    """Print one sentence and return the exit code of the result."""
    what = _named(result.delivery)
    if result.step == SENT:
        show(f"sent {what}")
    elif result.step == ALREADY and result.delivery.purpose == "nudge":
        show(f"not sent {what}: one nudge a day")
    elif result.step == ALREADY:
        show(f"not sent {what}: it was sent before; --again sends it once more")
    elif result.step == BUSY:
        show(f"not sent {what}: another sender is sending it")
    elif result.step == FAILED:
        say(f"could not send {what}: {result.reason}; the next run tries again")
    elif result.step == UNKNOWN:
        say(f"it is not known whether {what} arrived: {result.reason}; ask there, and send it with --again if not")
    return int(result.is_failure)


def would(state: DeliveryStatus, message: Message | None = None) -> str:
    """Return the line of a dry run. Without a message nothing would be sent."""
    what = _named(state.delivery)
    if message is not None:
        parts = ", ".join(part.name for part in message.attachments) or "no documents"
        return f"would send {what}: '{plain(message.subject, 200)}', {parts}, {format_bytes(message.size_bytes)}"
    when = f" on {moment(state.entry.time_ms)}" if state.entry else ""
    return f"would not send {what}: {state.step}{when}"


def _named(delivery: Delivery) -> str:
    return f"{delivery.purpose} {plain(delivery.week)} ({plain(delivery.edition)}) to {plain(delivery.target, 200)}"
