"""The weeks that are due at a target, and sending one edition of a week: for `fallow report send` and for a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from analytics.delivery.channels import open_channels
from analytics.delivery.content import edition_name, pack
from analytics.delivery.deliver import ALREADY, BUSY, DeliveryResult, deliver, left, to_do
from analytics.delivery.journal import ABANDONED, DeliveryStatus, Journal
from analytics.delivery.model import FAILED, SENT, UNKNOWN, Channel, Delivery, Message
from analytics.delivery.settings import Target, parse_targets
from analytics.language.sentences import Bytes, Language, Moment, plain, tr
from analytics.render.report.formats import FORMATS, Format
from analytics.report.report import Report
from analytics.report.weeks import Week, parse_week
from analytics.scope import Scope
from analytics.window import Inputs
from fallow.actors import Actor
from fallow.clock import HOUR_MS, WEEK_MS, Clock, SystemClock
from fallow.config import Config
from fallow.errors import MissingExtraError, UsageError
from fallow.lake import Lake

CLOSES_AFTER_MS = 6 * HOUR_MS
"""A week closes on Monday at 06:00 local time, when late rows of hosts have arrived."""

WEEKS_BACK = 4
"""Weeks that a run checks, including the newest."""


def asked_week(text: str, zone: tzinfo, now_ms: int) -> Week:
    """Return the week of --week; `last` is the newest closed week.

    Raises UsageError, also for a week that is not closed.
    """
    week = parse_week(text, zone, now_ms - CLOSES_AFTER_MS)
    if week.until_ms + CLOSES_AFTER_MS > now_ms:
        raise UsageError(
            f"{week.label} is not over: it closes on Monday, {week.before(-1).monday.isoformat()}, at 06:00",
            "an edition is sent once, so it is sent when it is whole; `fallow report --week` shows it as it stands",
        )
    return week


def missed_weeks(journal: Journal, newest: Week, edition: str, target: str) -> tuple[Week, ...]:
    """Return the weeks before `newest` that did not arrive, the oldest first.

    Only weeks since the first delivery or try at this target count: a new target does not get a month at once.
    """
    known = [
        entry.delivery.week
        for entry in journal.entries
        if (entry.delivery.purpose, entry.delivery.edition, entry.delivery.target) == ("report", edition, target)
    ]
    if not known:
        return ()
    weeks = (newest.before(number) for number in range(WEEKS_BACK - 1, 0, -1))
    return tuple(
        week
        for week in weeks
        if week.label >= min(known) and journal.state(delivery_of(week, edition, target)).step != SENT
    )


def failed_weeks(journal: Journal, newest: Week, edition: str, target: str) -> tuple[Week, ...]:
    """Return the weeks up to `newest` whose last try failed, the oldest first."""
    weeks = (newest.before(number) for number in range(WEEKS_BACK - 1, -1, -1))
    return tuple(week for week in weeks if journal.state(delivery_of(week, edition, target)).step == FAILED)


def delivery_of(week: Week, edition: str, target: str) -> Delivery:
    """Return the delivery of one edition of the report."""
    return Delivery("report", week.label, edition, target)


MakeReport = Callable[[Week], Report]

_LOOK_BACK_MS = 10 * WEEK_MS
DOCUMENTS = tuple(each for each in FORMATS if each.name in ("html", "pdf"))
"""Default formats of a delivery."""


@dataclass(frozen=True)
class EditionSender:
    """Sends one edition (part of the fleet and language) of any week, and records every step."""

    journal: Journal
    channels: Mapping[Target, Channel]
    edition: str
    clock: Clock
    sleep: Callable[[float], None]

    @classmethod
    def open(
        cls,
        lake: Lake,
        settings: Config,
        targets: Iterable[Target],
        edition: str,
        actor: Actor,
        *,
        newest: Week,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> EditionSender:
        """Return a sender, without contacting any target. Raises UsageError and ConfigError for invalid settings."""
        channels = open_channels(targets, settings, sleep)
        since_ms = min(newest.since_ms, clock.now_ms() - _LOOK_BACK_MS)
        return cls(Journal(lake, clock, actor, since_ms), channels, edition, clock, sleep)

    def delivery(self, week: Week, target: Target) -> Delivery:
        return delivery_of(week, self.edition, target.shown)

    def state(self, week: Week, target: Target) -> DeliveryStatus:
        return self.journal.state(self.delivery(week, target))

    def is_due(self, week: Week, target: Target, *, again: bool = False) -> bool:
        """Return True if it is due now. A delivery that arrived, or may have arrived, is due only with `again`."""
        repeatable = self.channels[target].repeatable
        return to_do(self.state(week, target), again=again, repeatable=repeatable) is not None

    def send(self, week: Week, target: Target, message: Message | None, *, again: bool = False) -> DeliveryResult:
        """Send it, or without a message return why it is not sent. Raises LakeError if the record cannot be written."""
        if message is None:
            return left(self.journal, self.state(week, target))
        delivery, channel = self.delivery(week, target), self.channels[target]
        return deliver(self.journal, delivery, message, channel, self.clock, again=again, sleep=self.sleep)


def pack_for(
    targets: Iterable[Target], report: Report, week: Week, language: Language, formats: Sequence[Format]
) -> Message:
    """Return the message for these targets.

    Raises MissingExtraError if a format needs packages that are not installed.
    """
    if not any(target.kind == "mail" for target in targets):
        return pack(report, week, language, formats, None)
    from analytics.render.html.mail import mail_body  # only mail pays for its picture

    return pack(report, week, language, formats, mail_body)


@dataclass(frozen=True)
class Order:
    """The request of a page: a week such as `2026-W46`, the part of the fleet, the language, and the targets.

    `targets` are the `shown` of some of `site_targets`; `actor` is the person who sends.
    """

    week: str
    scope: Scope
    language: Language
    targets: tuple[str, ...]
    actor: Actor


@dataclass(frozen=True)
class TargetOutcome:
    """The outcome for one target. `is_failure` if a person should check; `is_due` if it would be or was sent."""

    target: str
    sentence: str
    is_failure: bool = False
    is_due: bool = False


def site_targets(settings: Config) -> tuple[Target, ...]:
    """Return the targets in `report.to`. Raises UsageError for an invalid target."""
    return parse_targets(settings.texts("report.to"), settings.text("webhook.kind"))


def try_order(inputs: Inputs, order: Order, make: MakeReport) -> tuple[TargetOutcome, ...]:
    """Return what would be sent, without contacting any target and without a record.

    Raises UsageError for a week that is not closed, a target outside the settings, or an unusable channel.
    """
    sender, week, messages = _prepare(inputs, order, make)
    return tuple(_would(sender.state(week, target), message) for target, message in messages.items())


def send_order(inputs: Inputs, order: Order, make: MakeReport) -> tuple[TargetOutcome, ...]:
    """Send to each target that has not received it, and record every step under the actor's name.

    Raises as `try_order` does, and LakeError if the record cannot be written.
    """
    sender, week, messages = _prepare(inputs, order, make)
    return tuple(_became(sender.send(week, target, message)) for target, message in messages.items())


def _prepare(
    inputs: Inputs, order: Order, make: MakeReport
) -> tuple[EditionSender, Week, dict[Target, Message | None]]:
    """Return the sender, the week, and the message of each target (None if not due).

    Raises every error before sending.
    """
    targets = _chosen(site_targets(inputs.settings), order.targets)
    clock = SystemClock()
    week = asked_week(order.week, order.language.zone, clock.now_ms())
    edition = edition_name(order.scope, order.language.code)
    sender = EditionSender.open(inputs.lake, inputs.settings, targets, edition, order.actor, newest=week, clock=clock)
    due_ones = [target for target in targets if sender.is_due(week, target)]
    message = None
    if due_ones:
        report = make(week)
        try:
            message = pack_for(targets, report, week, order.language, DOCUMENTS)
        except MissingExtraError:  # without the PDF
            message = pack_for(targets, report, week, order.language, DOCUMENTS[:1])
    return sender, week, {target: message if target in due_ones else None for target in targets}


def _chosen(known: Sequence[Target], shown: Sequence[str]) -> tuple[Target, ...]:
    if not shown:
        raise UsageError("no target is chosen", "choose at least one")
    if strange := set(shown) - {target.shown for target in known}:
        raise UsageError(
            f"report.to does not name {plain(min(strange))}", "the targets are those of the settings, and no others"
        )
    return tuple(target for target in known if target.shown in shown)


def _would(state: DeliveryStatus, message: Message | None) -> TargetOutcome:
    target = plain(state.delivery.target, 200)
    if message is not None:
        parts = ", ".join(part.name for part in message.attachments)
        what = tr("would be sent: {parts}, {size}", parts=parts, size=Bytes(message.size_bytes))
        return TargetOutcome(target, what, is_due=True)
    when = Moment(state.entry.time_ms) if state.entry else tr("unknown")
    if state.step == SENT:
        return TargetOutcome(target, tr("would not be sent: it was sent on {when}", when=when))
    if state.step in (UNKNOWN, ABANDONED):
        return TargetOutcome(
            target, tr("would not be sent: it may have arrived on {when}; ask the recipient", when=when)
        )
    return TargetOutcome(target, tr("would not be sent: another sender is sending it"))


def _became(result: DeliveryResult) -> TargetOutcome:
    target, failed = plain(result.delivery.target, 200), result.is_failure
    if result.step == SENT:
        return TargetOutcome(target, tr("sent"), failed, is_due=True)
    if result.step == ALREADY:
        return TargetOutcome(target, tr("not sent: it was sent before"), failed)
    if result.step == BUSY:
        return TargetOutcome(target, tr("not sent: another sender is sending it"), failed)
    if result.step == FAILED:
        return TargetOutcome(
            target, tr("could not be sent: {reason}", reason=plain(result.reason, 300)), is_failure=True
        )
    return TargetOutcome(
        target, tr("unknown outcome, it may have arrived: {reason}", reason=plain(result.reason, 300)), is_failure=True
    )
