"""`fallow report nudge`: asks users about their own GPUs, and operators about what only they can do; only says so unless --send is given."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from analytics.commands.actor import add_actor_argument
from analytics.decide.actions import load_actions, record
from analytics.decide.asks import Ask, Asks, Basis, asks_of
from analytics.decide.deadlines import Deadlines
from analytics.decide.decisions import decide
from analytics.decide.recommendations import OPERATORS
from analytics.decide.review import Review, review
from analytics.decide.savings import recommendations_in
from analytics.delivery.channels import open_channels, safe
from analytics.delivery.deliver import deliver, left, tell, to_do, would
from analytics.delivery.journal import Journal
from analytics.delivery.links import AnswerLinks
from analytics.delivery.model import SENT, Channel, Delivery, Message
from analytics.delivery.nudges import Chosen, Contacts, Nudge, Past, Quiet, choose, day_of, pack_nudge
from analytics.delivery.settings import parse_targets
from analytics.language.language import Language
from analytics.language.languages import CODES, language
from analytics.language.plain_text import count, moment, plain
from analytics.ledger.summary import data_end_ms
from analytics.names import JOINER, asked_name
from analytics.window import Inputs, WindowLedger, load_window_ledger, open_inputs
from analytics.workloads.window_end import last_rows
from fallow.actors import command_actor
from fallow.clock import DAY_MS, WEEK_MS, AskedWindow, Clock, SystemClock
from fallow.errors import EmptyLakeError, FallowError, UsageError
from fallow.output import show

REPORT_SPAN = "7d"
"""Nudges are of the same week as a page without another window."""
NUDGE_EXAMPLE = "fallow report nudge --lake /srv/lake --send"


def add_nudge_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `fallow report nudge`; those that `fallow report` has too keep what stands before the verb."""
    parser.add_argument("--lake", metavar="DIR", help="the lake")
    parser.add_argument("--config", metavar="FILE", help="config file")
    parser.add_argument("--lang", choices=CODES, help="language (or report.language; default en)")
    parser.add_argument("--timezone", metavar="ZONE", help="IANA name of the zone of quiet hours (or report.timezone)")
    parser.add_argument("--user", metavar="NAME", type=asked_name, help="only this user")
    parser.add_argument(
        "--send", action="store_true", default=False, help="really send (default: say what would be sent)"
    )
    parser.add_argument(
        "--out",
        dest="folder",
        default=None,
        metavar="DIR",
        help="write the messages as .html and .txt into this folder, to look at them",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        default=False,
        help="also a nudge of today of which it is not known whether it arrived",
    )
    add_actor_argument(parser)


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
    since_ms = now_ms - max(cool_down_ms, WEEK_MS)
    journal = Journal(inputs.lake.require(), clock, command_actor(args.actor), since_ms)
    if args.send:
        _mend(inputs, journal)
    day = day_of(now_ms, speaks.zone)
    past = Past(load_actions(inputs.lake), journal, now_ms - cool_down_ms, day if args.again else None)
    operators = parse_targets(inputs.settings.texts("report.operators"), inputs.settings.text("webhook.kind"))
    inputs, ledger = _week(inputs, now_ms)
    found = _review(inputs, ledger, args.user, now_ms)
    if found is None:
        return 0
    decisions = decide(found, Deadlines.of(inputs.settings, speaks.zone), now_ms)
    asked = asks_of(recommendations_in(decisions, ledger.inside.stretches).listed, _basis(found))
    chosen = choose(_own(asked.asks, args.user), contacts, () if args.user else operators, past, found.context.owners)
    seen_ms = found.context.since_ms, found.context.until_ms
    work = _Work(inputs, journal, speaks, day, seen_ms, AnswerLinks.of(inputs.settings), clock)
    if args.folder is not None:
        _write(work, chosen, Path(args.folder))
    if not args.send:
        return _dry_run(work, chosen, asked, args.user, is_quiet=quiet.holds(now_ms))
    if quiet.holds(now_ms):
        show(f"not sent, for these are quiet hours: {_amount(chosen)}")
        return 0
    channels = open_channels({nudge.target for nudge in chosen.nudges}, inputs.settings)
    codes = [_send(work, nudge, channels[nudge.target], again=args.again) for nudge in chosen.nudges]
    if not codes:
        show(f"nobody to tell: {count(len(chosen.held_back), 'ask')} held back")
    return max(codes, default=0)


@dataclass(frozen=True)
class _Work:
    inputs: Inputs
    journal: Journal
    language: Language
    day: str
    seen_ms: tuple[int, int]
    links: AnswerLinks | None
    clock: Clock

    def delivery(self, nudge: Nudge) -> Delivery:
        edition = f"operators/{self.language.code}" if nudge.operators else self.language.code
        return Delivery("nudge", self.day, edition, nudge.target.shown)

    def message(self, nudge: Nudge) -> Message:
        return pack_nudge(nudge, self.language, self.day, self.seen_ms, self.links)


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


def _review(inputs: Inputs, ledger: WindowLedger, holder: str | None, now_ms: int) -> Review | None:
    """None where the newest rows are too old to be told of; raises EmptyLakeError, also for a user that nobody is."""
    newest_ms = data_end_ms(ledger.whole.host_ends, now_ms)
    if newest_ms < now_ms - DAY_MS:
        show(f"nobody is told: the lake's newest rows are from {moment(newest_ms)}, and what they say may be over")
        return None
    holders = {name for each in ledger.whole.stretches["holder"].unique() if each for name in each.split(JOINER)}
    if holder is not None and holder not in holders:
        raise EmptyLakeError(
            f"nothing in this lake is of user {plain(holder)}", "the names are those of `fallow ledger --by holder`"
        )
    return review(inputs, ledger, now_ms=now_ms)


def _basis(found: Review) -> Basis:
    context = found.context
    holders = last_rows(context).filter(pl.col("holder").is_not_null()).select("gpu", "holder")
    hosts = context.whole.lifetimes.select("gpu", "host")
    return Basis(found.actions, context.until_ms, dict(hosts.iter_rows()), dict(holders.iter_rows()))


def _own(asks: Iterable[Ask], holder: str | None) -> list[Ask]:
    """The asks of one user, who is asked nothing that operators own; all of them without a name."""
    return [each for each in asks if holder is None or (not each.to_operators and _is_of(each.holder, holder))]


def _is_of(holder: str | None, name: str) -> bool:
    return name in (holder or "").split(JOINER)


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


def _write(work: _Work, chosen: Chosen, folder: Path) -> None:
    """Every message as it would go out, under the name of its target; FallowError where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for nudge in chosen.nudges:
            message = work.message(nudge)
            name = safe(f"{'operators-' if nudge.operators else ''}{nudge.target.shown}")
            for ending, text in (("txt", message.text), ("html", message.html or "")):
                # what is said to one person is for whoever runs the command alone, whatever the umask
                descriptor = os.open(folder / f"{name}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
    except OSError as error:
        raise FallowError(
            f"cannot write to {folder}: {error.strerror}", "give --out a folder that you may write"
        ) from error
    show(f"wrote {count(len(chosen.nudges), 'message')} to {folder}")


def _dry_run(work: _Work, chosen: Chosen, asked: Asks, holder: str | None, *, is_quiet: bool) -> int:
    for nudge in chosen.nudges:
        standing = work.journal.standing(work.delivery(nudge))
        sendable = to_do(standing, again=False, repeatable=False) is not None
        show(would(standing, work.message(nudge) if sendable else None))
        for ask in nudge.asks:
            show(f"  {_described(ask)}: {', '.join(map(plain, ask.gpus))}")
    for ask, why in chosen.held_back:
        show(f"held back {_described(ask)}: {why}")
    for each, why in asked.left_out:
        if holder is None or _is_of(each.holder, holder):
            show(f"no ask of {each.recommendation_id} {each.kind.name} of {plain(each.holder or each.owner)}: {why}")
    if is_quiet:
        show("these are quiet hours: even with --send nothing would go out now")
    if work.links is None:
        show("without links to answer by: dashboard.address and dashboard.link_key_file are not both set")
    show(f"{_amount(chosen)}; nothing was sent: --send sends")
    return 0


def _described(ask: Ask) -> str:
    gpus = count(len(ask.gpus), "GPU")
    due = moment(ask.about.deadline_ms)
    ids, who = " ".join(ask.finding_ids or (ask.key,)), OPERATORS if ask.to_operators else ask.holder or "nobody"
    return f"{plain(ids)} {ask.action} of {plain(who)}, {gpus}, due {due}"


def _amount(chosen: Chosen) -> str:
    return f"{count(len(chosen.nudges), 'nudge')}, {count(len(chosen.held_back), 'ask')} held back"
