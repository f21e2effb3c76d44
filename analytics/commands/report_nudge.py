"""`fallow report nudge`: send users and operators their recommendations; without --send only list the messages."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from analytics.commands.actor import add_actor_argument
from analytics.decide.actions import load_actions, record
from analytics.decide.deadlines import Deadlines
from analytics.decide.decisions import decide
from analytics.decide.nudge_items import NudgeBasis, NudgeItem, NudgeItems, nudge_items
from analytics.decide.recommendations import OPERATORS
from analytics.decide.review import Review, find_in_window, with_actions
from analytics.decide.savings import recommendations_in
from analytics.decide.value import ValueBasis
from analytics.delivery.channels import open_channels, safe
from analytics.delivery.deliver import deliver, left, tell, to_do, would
from analytics.delivery.journal import Journal
from analytics.delivery.links import AnswerLinks
from analytics.delivery.model import SENT, Channel, Delivery, Message
from analytics.delivery.nudges import Chosen, Contacts, Nudge, Past, Quiet, choose, day_of, pack_nudge
from analytics.delivery.settings import parse_targets
from analytics.language.languages import CODES, language, time_zone
from analytics.language.sentences import Language, count, moment, plain
from analytics.ledger.summary import data_end_ms
from analytics.money.window_money import open_grid
from analytics.names import JOINER, asked_name
from analytics.report.decision_window import decision_window
from analytics.window import Inputs, WindowLedger, load_window_ledger, open_inputs
from analytics.workloads.window_end import last_rows
from fallow.actors import command_actor
from fallow.clock import DAY_MS, WEEK_MS, AskedWindow, Clock, SystemClock
from fallow.errors import EmptyLakeError, FallowError, UsageError
from fallow.output import show

_NEWEST = "7d"
"""Window that finds the end of the data; the figures are of the decision window with this end."""
NUDGE_EXAMPLE = "fallow report nudge --lake /srv/lake --send"


def add_nudge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fallow report nudge`; flags that `fallow report` shares keep a value before the verb."""
    parser.add_argument("--lake", metavar="DIR", help="the lake")
    parser.add_argument("--config", metavar="FILE", help="config file")
    parser.add_argument("--lang", choices=CODES, help="language (or report.language; default en)")
    parser.add_argument("--timezone", metavar="ZONE", help="IANA name of the zone of quiet hours (or report.timezone)")
    parser.add_argument("--user", metavar="NAME", type=asked_name, help="only this user")
    parser.add_argument("--send", action="store_true", default=False, help="send the messages (default: list them)")
    parser.add_argument(
        "--out",
        dest="folder",
        default=None,
        metavar="DIR",
        help="write the messages as .html and .txt files to this folder for review",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        default=False,
        help="send today's nudges again if their arrival is unknown",
    )
    add_actor_argument(parser)


def run_nudge(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Send or list the nudges; return 0 if all arrived, else 1 after a sentence for each failure."""
    clock = clock or SystemClock()
    now_ms = clock.now_ms()
    inputs = open_inputs(argparse.Namespace(**vars(args) | {"since": _NEWEST, "until": None}))
    zone_name = args.timezone or inputs.settings.text("report.timezone")
    speaks = language(args.lang or inputs.settings.text("report.language"), zone_name)
    quiet = Quiet.of(inputs.settings, speaks.zone)
    path = inputs.settings.text("report.contacts")
    if not path:
        raise UsageError("report.contacts is missing", "name a CSV file with kind,name,email (docs/delivering.md)")
    contacts = Contacts.load(path, inputs.settings.text("report.opt_out"))
    cool_down_ms = inputs.settings.integer("report.cool_down")
    since_ms = now_ms - max(cool_down_ms, WEEK_MS)
    journal = Journal(inputs.lake.require(), clock, command_actor(args.actor), since_ms)
    if args.send:
        _mend(inputs, journal)
    day = day_of(now_ms, speaks.zone)
    past = Past(load_actions(inputs.lake), journal, now_ms - cool_down_ms, day if args.again else None)
    operators = parse_targets(inputs.settings.texts("report.operators"), inputs.settings.text("webhook.kind"))
    inputs, ledger = _week(inputs, now_ms)
    own = decision_window(inputs, ledger, time_zone(inputs.settings.text("report.timezone")), now_ms)
    found = _review(inputs, own.ledger, args.user, now_ms)
    if found is None:
        return 0
    basis = ValueBasis(own.weeks, open_grid(inputs.settings, found.context.costs.prices))
    decisions = decide(found, Deadlines.of(inputs.settings, speaks.zone), basis, now_ms)
    asked = nudge_items(recommendations_in(decisions, own.ledger.inside.segments).listed, _basis(found))
    chosen = choose(_own(asked.items, args.user), contacts, () if args.user else operators, past, found.context.owners)
    seen_ms = found.context.since_ms, found.context.until_ms
    work = _Work(inputs, journal, speaks, day, seen_ms, AnswerLinks.of(inputs.settings), clock)
    if args.folder is not None:
        _write(work, chosen, Path(args.folder))
    if not args.send:
        return _dry_run(work, chosen, asked, args.user, is_quiet=quiet.holds(now_ms))
    if quiet.holds(now_ms):
        show(f"not sent during quiet hours: {_amount(chosen)}")
        return 0
    channels = open_channels({nudge.target for nudge in chosen.nudges}, inputs.settings)
    codes = [_send(work, nudge, channels[nudge.target], again=args.again) for nudge in chosen.nudges]
    if not codes:
        show(f"no nudge to send: {count(len(chosen.held_back), 'nudge item')} held back")
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


def _week(inputs: Inputs, now_ms: int) -> tuple[Inputs, WindowLedger]:
    """Return the days up to the end of the data and not after now, and the ledger as known at that end."""
    recent = load_window_ledger(inputs, or_empty=True, now_ms=now_ms)
    end_ms = min(data_end_ms(recent.whole.host_ends, now_ms), now_ms)
    asked = inputs.back or AskedWindow()
    week = replace(inputs, window=replace(asked.before(end_ms), until_ms=end_ms), back=None)
    return week, load_window_ledger(week, or_empty=True, whole=recent.whole, now_ms=now_ms)


def _review(inputs: Inputs, ledger: WindowLedger, user: str | None, now_ms: int) -> Review | None:
    """Return the findings; None if the newest row is over a day old. Raises EmptyLakeError, also for unknown users."""
    newest_ms = data_end_ms(ledger.whole.host_ends, now_ms)
    if newest_ms < now_ms - DAY_MS:
        show(f"no nudge is sent: the lake's newest rows are from {moment(newest_ms)} and may be outdated")
        return None
    users = {name for each in ledger.whole.segments["user"].unique() if each for name in each.split(JOINER)}
    if user is not None and user not in users:
        raise EmptyLakeError(f"the lake has no data of user {plain(user)}", "`fallow ledger --by user` lists the users")
    return with_actions(find_in_window(inputs, ledger, now_ms=now_ms))


def _basis(found: Review) -> NudgeBasis:
    context = found.context
    users = last_rows(context).filter(pl.col("user").is_not_null()).select("gpu", "user")
    hosts = context.whole.lifetimes.select("gpu", "host")
    return NudgeBasis(found.actions, context.until_ms, dict(hosts.iter_rows()), dict(users.iter_rows()))


def _own(items: Iterable[NudgeItem], user: str | None) -> list[NudgeItem]:
    """Return the items of one user, without those of operators; all items if no user is given."""
    return [each for each in items if user is None or (not each.to_operators and _is_of(each.user, user))]


def _is_of(user: str | None, name: str) -> bool:
    return name in (user or "").split(JOINER)


def _mend(inputs: Inputs, journal: Journal) -> None:
    """Record the notifications of nudges that arrived but could not be recorded at the time."""
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
    state = work.journal.state(delivery)
    if state.step == SENT or to_do(state, again=again, repeatable=False) is None:
        return tell(left(work.journal, state))
    result = deliver(work.journal, delivery, message, channel, work.clock, again=again)
    if result.step == SENT:
        now_ms, ids = work.clock.now_ms(), message.finding_ids
        record(work.inputs.lake, "notify", ids, work.journal.actor, now_ms=now_ms, channel=delivery.target)
    return tell(result)


def _write(work: _Work, chosen: Chosen, folder: Path) -> None:
    """Write each message under the name of its target; raises FallowError if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for nudge in chosen.nudges:
            message = work.message(nudge)
            name = safe(f"{'operators-' if nudge.operators else ''}{nudge.target.shown}")
            for ending, text in (("txt", message.text), ("html", message.html or "")):
                # messages are private: only the user who runs the command may read them, whatever the umask
                descriptor = os.open(folder / f"{name}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
    except OSError as error:
        raise FallowError(
            f"cannot write to {folder}: {error.strerror}", "give --out a folder that you may write"
        ) from error
    show(f"wrote {count(len(chosen.nudges), 'message')} to {folder}")


def _dry_run(work: _Work, chosen: Chosen, asked: NudgeItems, user: str | None, *, is_quiet: bool) -> int:
    for nudge in chosen.nudges:
        state = work.journal.state(work.delivery(nudge))
        sendable = to_do(state, again=False, repeatable=False) is not None
        show(would(state, work.message(nudge) if sendable else None))
        for item in nudge.items:
            show(f"  {_described(item)}: {', '.join(map(plain, item.gpus))}")
    for item, why in chosen.held_back:
        show(f"held back {_described(item)}: {why}")
    for each, why in asked.left_out:
        if user is None or _is_of(each.user, user):
            show(f"no nudge about {each.recommendation_id} {each.kind.name} of {plain(each.user or each.owner)}: {why}")
    if is_quiet:
        show("quiet hours: --send would send nothing now")
    if work.links is None:
        show("the messages have no answer links: set dashboard.address and dashboard.link_key_file")
    show(f"{_amount(chosen)}; nothing was sent: add --send to send")
    return 0


def _described(item: NudgeItem) -> str:
    gpus = count(len(item.gpus), "GPU")
    due = item.about.deadline.isoformat()
    ids, who = " ".join(item.finding_ids or (item.key,)), OPERATORS if item.to_operators else item.user or "no user"
    return f"{plain(ids)} {item.about.action} of {plain(who)}, {gpus}, due {due}"


def _amount(chosen: Chosen) -> str:
    return f"{count(len(chosen.nudges), 'nudge')}, {count(len(chosen.held_back), 'nudge item')} held back"
