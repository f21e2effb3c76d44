"""`fallow report nudge`: tells users of their own findings; says what it would do unless --send is given."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from analytics.decide.actions import actor_name, load_actions, record
from analytics.decide.review import review
from analytics.delivery.channels import open_channels
from analytics.delivery.content import pack_nudge
from analytics.delivery.deliver import deliver, left, tell, to_do, would
from analytics.delivery.journal import Journal
from analytics.delivery.model import SENT, Channel, Delivery, Message
from analytics.delivery.nudges import Chosen, Contacts, Nudge, Past, Quiet, choose, day_of
from analytics.delivery.targets import mail_target
from analytics.language.language import Language
from analytics.language.languages import CODES, language
from analytics.language.plain_text import count, moment, plain
from analytics.ledger.data_end import data_end_ms
from analytics.names import JOINER, asked_name
from analytics.window import Inputs, WindowLedger, load_window_ledger, open_inputs
from analytics.workloads.model import Finding
from fallow.clock import DAY_MS, WEEK_MS, AskedWindow, Clock, SystemClock, Window
from fallow.errors import EmptyLakeError, UsageError

REPORT_SPAN = "7d"
"""Nudges are of the same week as a page without another window."""
NUDGE_EXAMPLE = "fallow report nudge --lake /srv/lake --send"


def add_nudge_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `fallow report nudge`; those that `fallow report` has too keep what stands before the verb."""
    parser.add_argument("--lake", metavar="DIR", help="the lake")
    parser.add_argument("--config", metavar="FILE", help="config file")
    parser.add_argument("--lang", choices=CODES, help="language (or report.language; default en)")
    parser.add_argument("--timezone", metavar="ZONE", help="IANA name of the zone of quiet hours (or report.timezone)")
    parser.add_argument("--holder", metavar="NAME", type=asked_name, help="only this user")
    parser.add_argument(
        "--send", action="store_true", default=False, help="really send (default: say what would be sent)"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        default=False,
        help="also a nudge of today of which it is not known whether it arrived",
    )
    parser.add_argument(
        "--as", dest="actor", default=None, metavar="NAME", help="who you are (default: your login name)"
    )


def run_nudge(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Tells them, or says what it would tell; 0 where everything arrived, 1 with a sentence where not."""
    clock = clock or SystemClock()
    now_ms = clock.now_ms()
    inputs = open_inputs(argparse.Namespace(**vars(args) | {"since": REPORT_SPAN, "until": None}))
    zone_name = args.timezone or inputs.settings.text("report.timezone")
    speaks = language(args.lang or inputs.settings.text("report.language"), zone_name)
    quiet = Quiet.of(inputs.settings, speaks.zone)
    contacts = _contacts(inputs)
    cool_down_ms = inputs.settings.integer("report.cool_down")
    journal = Journal(inputs.lake.require(), clock, actor_name(args.actor), now_ms - max(cool_down_ms, WEEK_MS))
    if args.send:
        _mend(inputs, journal)
    day = day_of(now_ms, speaks.zone)
    past = Past(load_actions(inputs.lake), journal, now_ms - cool_down_ms, day if args.again else None)
    inputs, ledger = _week(inputs, now_ms)
    found = _findings(inputs, ledger, args.holder, now_ms)
    if found is None:
        return 0
    chosen, window = choose(found, contacts, past), ledger.window
    work = _Work(inputs, journal, speaks, day, window, clock)
    if not args.send:
        return _dry_run(work, chosen, is_quiet=quiet.holds(now_ms))
    if quiet.holds(now_ms):
        print(f"not sent, for these are quiet hours: {_amount(chosen)}")
        return 0
    channels = open_channels([mail_target(nudge.address) for nudge in chosen.nudges], inputs.settings)
    codes = [_send(work, nudge, channels[mail_target(nudge.address)], again=args.again) for nudge in chosen.nudges]
    if not codes:
        print(f"nobody to tell: {count(len(chosen.held_back), 'finding')} held back")
    return max(codes, default=0)


@dataclass(frozen=True)
class _Work:
    inputs: Inputs
    journal: Journal
    language: Language
    day: str
    window: Window
    clock: Clock

    def delivery(self, nudge: Nudge) -> Delivery:
        return Delivery("nudge", self.day, self.language.code, mail_target(nudge.address).shown)

    def message(self, nudge: Nudge) -> Message:
        return pack_nudge(nudge, self.language, self.day, (self.window.since_ms or 0, self.window.until_ms or 0))


def _contacts(inputs: Inputs) -> Contacts:
    path = inputs.settings.text("report.contacts")
    if not path:
        raise UsageError("report.contacts is missing", "name a CSV file with kind,name,email (docs/delivering.md)")
    return Contacts.load(path, inputs.settings.text("report.opt_out"))


def _week(inputs: Inputs, now_ms: int) -> tuple[Inputs, WindowLedger]:
    """The days up to the end of the data, as far as they have passed, and what the lake knew at that end."""
    recent = load_window_ledger(inputs, or_empty=True, now_ms=now_ms)
    end_ms = min(data_end_ms(recent.whole.host_ends, now_ms), now_ms)
    asked = inputs.back or AskedWindow()
    week = replace(inputs, window=replace(asked.before(end_ms), until_ms=end_ms), back=None)
    return week, load_window_ledger(week, or_empty=True, whole=recent.whole, now_ms=now_ms)


def _findings(inputs: Inputs, ledger: WindowLedger, holder: str | None, now_ms: int) -> list[Finding] | None:
    """None where the newest rows are too old to be told of; raises EmptyLakeError, also for a user that nobody is."""
    newest_ms = data_end_ms(ledger.whole.host_ends, now_ms)
    if newest_ms < now_ms - DAY_MS:
        print(f"nobody is told: the lake's newest rows are from {moment(newest_ms)}, and what they say may be over")
        return None
    holders = {name for each in ledger.whole.stretches["holder"].unique() if each for name in each.split(JOINER)}
    if holder is not None and holder not in holders:
        raise EmptyLakeError(
            f"nothing in this lake is of user {plain(holder)}", "the names are those of `fallow ledger --by holder`"
        )
    found = review(inputs, ledger, now_ms=now_ms).shown
    return [each for each in found if holder is None or holder in (each.holder or "").split(JOINER)]


def _mend(inputs: Inputs, journal: Journal) -> None:
    """Adds the notifications of nudges that arrived and could not be put beside their findings at the time."""
    actions = load_actions(inputs.lake)
    for entry in journal.entries:
        if entry.delivery.purpose != "nudge" or entry.step != SENT:
            continue
        lacking = [
            each
            for each in entry.finding_ids
            if not any(
                action.kind == "notify" and action.channel == entry.delivery.target and action.time_ms >= entry.time_ms
                for action in actions.get(each, ())
            )
        ]
        if lacking:
            target = entry.delivery.target
            record(inputs.lake, "notify", lacking, journal.actor, now_ms=entry.time_ms, channel=target)


def _send(work: _Work, nudge: Nudge, channel: Channel, *, again: bool) -> int:
    delivery, message = work.delivery(nudge), work.message(nudge)
    standing = work.journal.standing(delivery)
    if standing.step == SENT or to_do(standing, again=again, repeatable=False) is None:
        return tell(left(work.journal, standing))
    result = deliver(work.journal, delivery, message, channel, work.clock, again=again)
    if result.step == SENT:
        now_ms, ids = work.clock.now_ms(), message.finding_ids
        record(work.inputs.lake, "notify", ids, work.journal.actor, now_ms=now_ms, channel=delivery.target)
    return tell(result)


def _dry_run(work: _Work, chosen: Chosen, *, is_quiet: bool) -> int:
    for nudge in chosen.nudges:
        standing = work.journal.standing(work.delivery(nudge))
        sendable = to_do(standing, again=False, repeatable=False) is not None
        print(would(standing, work.message(nudge) if sendable else None))
        for finding in nudge.findings:
            print(f"  {finding.finding_id} {finding.rule} of {plain(finding.holder or '')}")
    for finding, why in chosen.held_back:
        print(f"held back {finding.finding_id} {finding.rule} of {plain(finding.holder or 'nobody')}: {why}")
    if is_quiet:
        print("these are quiet hours: even with --send nothing would go out now")
    print(f"{_amount(chosen)}; nothing was sent: --send sends")
    return 0


def _amount(chosen: Chosen) -> str:
    return f"{count(len(chosen.nudges), 'nudge')}, {count(len(chosen.held_back), 'finding')} held back"
