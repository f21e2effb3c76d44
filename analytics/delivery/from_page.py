"""Sending from a page: one edition of a closed week, to targets that the site's own settings name and to no others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.commands.report import format_named
from analytics.decide.actions import who
from analytics.delivery import due
from analytics.delivery.channels import open_channels
from analytics.delivery.deliver import ALREADY, BUSY, deliver, left, to_do
from analytics.delivery.edition_message import edition_name, pack
from analytics.delivery.journal import ABANDONED, Journal
from analytics.delivery.model import FAILED, SENT, UNKNOWN
from analytics.delivery.targets import parse_targets
from analytics.language.plain_text import plain
from analytics.language.quantities import Bytes, Moment
from analytics.language.sentences import say
from fallow.clock import WEEK_MS, SystemClock
from fallow.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analytics.delivery.deliver import Result
    from analytics.delivery.journal import Standing
    from analytics.delivery.model import Parcel
    from analytics.delivery.targets import Target
    from analytics.language.languages import Language
    from analytics.report.model import Report
    from analytics.report.weeks import Week
    from analytics.scope import Scope
    from analytics.window import Inputs
    from fallow.clock import Clock
    from fallow.config import Config

    MakeReport = Callable[[Week], Report]

_LOOK_BACK_MS = 10 * WEEK_MS
_DOCUMENTS = ("html", "pdf")


@dataclass(frozen=True)
class Order:
    """What somebody asks for: a week such as `2026-W46`, the part of the fleet, the language, and to which targets.

    `targets` are some of those that `site_targets` has, by what they are shown as; `actor` is who asks.
    """

    week: str
    scope: Scope
    language: Language
    targets: tuple[str, ...]
    actor: str


@dataclass(frozen=True)
class Said:
    """One sentence on one target; `is_failure` where a person should look, `is_due` where it would go or went out."""

    target: str
    sentence: str
    is_failure: bool = False
    is_due: bool = False


def site_targets(settings: Config) -> tuple[Target, ...]:
    """The targets that `report.to` names; raises UsageError for one that cannot be read."""
    return parse_targets(settings.texts("report.to"), settings.text("webhook.kind"))


def try_order(inputs: Inputs, order: Order, make: MakeReport, clock: Clock | None = None) -> tuple[Said, ...]:
    """What would be sent, without contacting or recording anything.

    Raises UsageError for a week that is not closed, a target that the settings do not name, or a channel that cannot be used.
    """
    sending = _Sending(inputs, order, clock or SystemClock(), time.sleep)
    due_ones = sending.due()
    parcel = sending.parcel(make) if due_ones else None
    return tuple(_would(sending.standing(target), parcel if target in due_ones else None) for target in sending.targets)


def send_order(
    inputs: Inputs,
    order: Order,
    make: MakeReport,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Said, ...]:
    """Sends it to each target that has not had it, and records every step under the actor's name.

    Raises as `try_order` does, and LakeError where the record cannot be kept.
    """
    sending = _Sending(inputs, order, clock or SystemClock(), sleep)
    due_ones = sending.due()
    parcel = sending.parcel(make) if due_ones else None
    return tuple(_became(sending.send(target, parcel if target in due_ones else None)) for target in sending.targets)


class _Sending:
    """Everything that can be wrong with an order is found when this is made, before anything is sent."""

    def __init__(self, inputs: Inputs, order: Order, clock: Clock, sleep: Callable[[float], None]) -> None:
        now_ms = clock.now_ms()
        self.targets = _chosen(site_targets(inputs.settings), order.targets)
        self._week = due.asked_week(order.week, order.language.zone, now_ms)
        self._edition = edition_name(order.scope, order.language.code)
        self._order, self._clock, self._sleep = order, clock, sleep
        self._channels = open_channels(self.targets, inputs.settings, sleep)
        since_ms = min(self._week.since_ms, now_ms - _LOOK_BACK_MS)
        self._journal = Journal(inputs.lake, clock, who(order.actor), since_ms)

    def standing(self, target: Target) -> Standing:
        return self._journal.standing(due.of(self._week, self._edition, target.shown))

    def due(self) -> list[Target]:
        """Those to which it is to go: what arrived, or may have, goes there again by a person's word on the command line only."""
        return [
            target
            for target in self.targets
            if to_do(self.standing(target), again=False, repeatable=self._channels[target].repeatable) is not None
        ]

    def parcel(self, make: MakeReport) -> Parcel:
        """With the documents that the command attaches; without the PDF where that cannot be made."""
        from analytics.render.html.mail import mail_body  # only mail pays for its picture

        report, language = make(self._week), self._order.language
        body = mail_body if any(target.kind == "mail" for target in self.targets) else None
        formats = [format_named(name) for name in _DOCUMENTS]
        try:
            return pack(report, self._week, language, formats, body)
        except MissingExtraError:
            return pack(report, self._week, language, formats[:1], body)

    def send(self, target: Target, parcel: Parcel | None) -> Result:
        standing = self.standing(target)
        if parcel is None:
            return left(self._journal, standing)
        delivery = due.of(self._week, self._edition, target.shown)
        return deliver(self._journal, delivery, parcel, self._channels[target], self._clock, sleep=self._sleep)


def _chosen(known: Sequence[Target], shown: Sequence[str]) -> tuple[Target, ...]:
    if not shown:
        raise UsageError("no target is chosen", "choose at least one")
    if strange := set(shown) - {target.shown for target in known}:
        raise UsageError(
            f"report.to does not name {plain(min(strange))}", "the targets are those of the settings, and no others"
        )
    return tuple(target for target in known if target.shown in shown)


def _would(standing: Standing, parcel: Parcel | None) -> Said:
    target = plain(standing.delivery.target, 200)
    if parcel is not None:
        parts = ", ".join(part.name for part in parcel.attachments)
        what = say("would be sent: {parts}, {size}", parts=parts, size=Bytes(parcel.size_bytes))
        return Said(target, what, is_due=True)
    when = Moment(standing.entry.time_ms) if standing.entry else say("unknown")
    if standing.step == SENT:
        return Said(target, say("would not be sent: it was sent on {when}", when=when))
    if standing.step in (UNKNOWN, ABANDONED):
        return Said(target, say("would not be sent: it may have arrived on {when}; ask there", when=when))
    return Said(target, say("would not be sent: somebody else is sending it"))


def _became(result: Result) -> Said:
    target, failed = plain(result.delivery.target, 200), result.is_failure
    if result.step == SENT:
        return Said(target, say("sent"), failed, is_due=True)
    if result.step == ALREADY:
        return Said(target, say("not sent: it was sent before"), failed)
    if result.step == BUSY:
        return Said(target, say("not sent: somebody else is sending it"), failed)
    if result.step == FAILED:
        return Said(target, say("could not be sent: {reason}", reason=plain(result.reason, 300)), is_failure=True)
    return Said(
        target, say("it is not known whether it arrived: {reason}", reason=plain(result.reason, 300)), is_failure=True
    )
