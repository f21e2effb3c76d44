"""`fallow report send`: the report of a week to people, chats and folders, each once."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.commands.report import add_edition_arguments, format_named, open_edition
from analytics.decide.actions import actor_name
from analytics.delivery import due
from analytics.delivery.channels import open_channels
from analytics.delivery.deliver import deliver, left, to_do
from analytics.delivery.edition_message import edition_name, pack
from analytics.delivery.journal import Journal
from analytics.delivery.progress import tell, would
from analytics.delivery.targets import parse_targets
from analytics.language.languages import language, time_zone
from analytics.render.report import FORMATS
from analytics.scope import Scope
from fallow import config
from fallow.clock import WEEK_MS, SystemClock
from fallow.errors import FallowError, MissingExtraError, UsageError
from fallow.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from analytics.delivery.deliver import Result
    from analytics.delivery.edition_message import MailBody
    from analytics.delivery.model import Channel, Parcel
    from analytics.delivery.targets import Target
    from analytics.render.report import Format
    from analytics.report.weeks import Week
    from fallow.clock import Clock

SEND_EXAMPLE = "fallow report send --week last --to mailto:lead@example.org --to /srv/reports --lake /srv/lake"
_LOOK_BACK_MS = 10 * WEEK_MS


def add_send_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `fallow report send`; those that `fallow report` has too keep what stands before the verb."""
    parser.add_argument("--lake", metavar="DIR", help="the lake")
    parser.add_argument("--config", metavar="FILE", help="config file")
    add_edition_arguments(parser)
    parser.add_argument(
        "--to", action="append", default=None, metavar="TARGET",
        help="mailto:NAME@HOST, https://..., slack+https://..., a folder or s3://bucket/prefix; may be given several times "
        "(default: report.to)",
    )  # fmt: skip
    parser.add_argument(
        "--format", dest="formats", action="append", default=None, metavar="NAMES",
        help=f"documents to attach or to write, separated by commas, of {', '.join(each.name for each in FORMATS)}; may be "
        "given several times (default: html and, where it can be made, pdf)",
    )  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--catch-up", action="store_true", default=False,
        help=f"also what did not arrive of the {due.BACK - 1} weeks before",
    )  # fmt: skip
    which.add_argument("--retry", action="store_true", default=False, help="only what failed, of the last 4 weeks")
    which.add_argument("--again", action="store_true", default=False, help="also where it was sent, or may have been")
    parser.add_argument(
        "--dry-run", action="store_true", default=False, help="say what would be sent, and send nothing"
    )
    parser.add_argument(
        "--as", dest="actor", default=None, metavar="NAME", help="who you are (default: your login name)"
    )


def run_send(args: argparse.Namespace, clock: Clock | None = None, sleep: Callable[[float], None] = time.sleep) -> int:
    """Sends; 0 where everything arrived or had arrived, 1 with a sentence for each that did not. Raises FallowError."""
    sending = _open(args, clock or SystemClock(), sleep)
    weeks = {target: _weeks(args, sending, target) for target in sending.channels}
    worst = 0
    for week in sorted({week for each in weeks.values() for week in each}, key=lambda each: each.since_ms):
        targets = [target for target, wanted in weeks.items() if week in wanted]
        try:
            for result in _send_week(args, sending, week, targets):
                worst = max(worst, tell(result))
        except MissingExtraError:
            raise
        except FallowError as error:
            print(f"fallow: {week.label}: {error}", file=sys.stderr)
            worst = 1
    if not any(weeks.values()):
        print("nothing to send again")
    return worst


@dataclass(frozen=True)
class _Sending:
    journal: Journal
    channels: Mapping[Target, Channel]
    formats: Sequence[Format]
    edition: str
    newest: Week
    clock: Clock
    sleep: Callable[[float], None]


def _open(args: argparse.Namespace, clock: Clock, sleep: Callable[[float], None]) -> _Sending:
    """Everything that can be wrong with flags and settings is found here, before anything is sent."""
    settings = config.load({"lake.path": args.lake}, args.config)
    lake = Lake.at(settings.require("lake.path", "--lake")).require()
    targets = parse_targets(args.to or settings.texts("report.to"), settings.text("webhook.kind"))
    if not targets:
        raise UsageError("--to is missing", "give --to, or set report.to (docs/delivering.md)")
    zone_name = args.timezone or settings.text("report.timezone")
    speaks = language(args.lang or settings.text("report.language"), zone_name)
    newest = due.asked_week(args.week or "last", time_zone(zone_name), clock.now_ms())
    since_ms = min(newest.since_ms, clock.now_ms() - _LOOK_BACK_MS)
    return _Sending(
        journal=Journal(lake, clock, actor_name(args.actor), since_ms),
        channels=open_channels(targets, settings, sleep),
        formats=_formats(args.formats),
        edition=edition_name(Scope.of(args), speaks.code),
        newest=newest,
        clock=clock,
        sleep=sleep,
    )


def _formats(given: Sequence[str] | None) -> tuple[Format, ...]:
    known = [each.name for each in FORMATS]
    names = [name for each in given or ("html,pdf",) for name in each.split(",")]
    if wrong := [name for name in names if name not in known]:
        raise UsageError(f"--format: '{wrong[0]}' is not one of {', '.join(known)}", "separate several by commas")
    return tuple(format_named(name) for name in dict.fromkeys(names))


def _weeks(args: argparse.Namespace, sending: _Sending, target: Target) -> tuple[Week, ...]:
    asked = sending.journal, sending.newest, sending.edition, target.shown
    if args.retry:
        return due.failed(*asked)
    return (*(due.missed(*asked) if args.catch_up else ()), sending.newest)


def _send_week(args: argparse.Namespace, sending: _Sending, week: Week, targets: Sequence[Target]) -> Iterator[Result]:
    """One week to its targets; the report is only made where somebody still has to get it."""
    due_ones = []
    for target in targets:
        standing = sending.journal.standing(due.of(week, sending.edition, target.shown))
        if to_do(standing, again=args.again, repeatable=sending.channels[target].repeatable) is not None:
            due_ones.append(target)
        elif args.dry_run:
            print(would(standing))
        else:
            yield left(sending.journal, standing)
    parcel = _parcel(args, sending, week, due_ones) if due_ones else None
    for target in due_ones:
        delivery = due.of(week, sending.edition, target.shown)
        if parcel is None or args.dry_run:
            print(would(sending.journal.standing(delivery), parcel))
            continue
        channel = sending.channels[target]
        yield deliver(sending.journal, delivery, parcel, channel, sending.clock, again=args.again, sleep=sending.sleep)


def _parcel(args: argparse.Namespace, sending: _Sending, week: Week, targets: Sequence[Target]) -> Parcel:
    flags = argparse.Namespace(**vars(args) | {"week": week.label, "since": None, "until": None})
    edition = open_edition(flags, sending.clock.now_ms())
    body = _mail_body() if any(target.kind == "mail" for target in targets) else None
    try:
        return pack(edition.report, week, edition.language, sending.formats, body)
    except MissingExtraError as error:
        if args.formats is not None:
            raise
        print(f"fallow: without PDF: {error}", file=sys.stderr)
        plain = [each for each in sending.formats if each.name != "pdf"]
        return pack(edition.report, week, edition.language, plain, body)


def _mail_body() -> MailBody:
    from analytics.render.html.mail import mail_body  # only mail pays for its picture

    return mail_body
