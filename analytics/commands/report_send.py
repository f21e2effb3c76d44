"""`fallow report send`: send a week's report to people, chats and folders, once each."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from analytics.commands.actor import add_actor_argument
from analytics.commands.report_edition import add_edition_arguments, format_named, open_edition
from analytics.delivery.content import edition_name
from analytics.delivery.deliver import DeliveryResult, tell, would
from analytics.delivery.editions import (
    DOCUMENTS,
    WEEKS_BACK,
    EditionSender,
    asked_week,
    failed_weeks,
    missed_weeks,
    pack_for,
)
from analytics.delivery.model import Message
from analytics.delivery.settings import Target, parse_targets
from analytics.language.languages import CODES, language, time_zone
from analytics.render.report.formats import FORMATS, Format
from analytics.report.weeks import Week
from analytics.scope import Scope
from fallow import config
from fallow.actors import command_actor
from fallow.clock import Clock, SystemClock
from fallow.errors import FallowError, MissingExtraError, UsageError
from fallow.lake import Lake
from fallow.output import say, show

SEND_EXAMPLE = "fallow report send --week last --to mailto:lead@example.org --to /srv/reports --lake /srv/lake"


def add_send_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fallow report send`; flags that `fallow report` shares keep a value before the verb."""
    parser.add_argument("--lake", metavar="DIR", help="the lake")
    parser.add_argument("--config", metavar="FILE", help="config file")
    add_edition_arguments(parser)
    parser.add_argument("--lang", choices=CODES, help="language (or report.language; default en)")
    parser.add_argument(
        "--to",
        action="append",
        default=None,
        metavar="TARGET",
        help="mailto:NAME@HOST, https://..., slack+https://..., a folder or s3://bucket/prefix; repeatable "
        "(default: report.to)",
    )
    parser.add_argument(
        "--format",
        dest="formats",
        action="append",
        default=None,
        metavar="NAMES",
        help=f"documents to attach or write, separated by commas: {', '.join(each.name for each in FORMATS)}; "
        "repeatable (default: html, and pdf if it can be made)",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--catch-up",
        action="store_true",
        default=False,
        help=f"also send reports of the {WEEKS_BACK - 1} weeks before that did not arrive",
    )
    which.add_argument(
        "--retry", action="store_true", default=False, help="only send reports of the last 4 weeks that failed"
    )
    which.add_argument(
        "--again", action="store_true", default=False, help="send again even if the report arrived or may have arrived"
    )
    parser.add_argument(
        "--dry-run", action="store_true", default=False, help="list what would be sent and send nothing"
    )
    add_actor_argument(parser)


def run_send(args: argparse.Namespace, clock: Clock | None = None, sleep: Callable[[float], None] = time.sleep) -> int:
    """Send the reports; return 0 if all have arrived, else 1 after a sentence for each failure. Raises FallowError."""
    sending = _open(args, clock or SystemClock(), sleep)
    weeks = {target: _weeks(args, sending, target) for target in sending.sender.channels}
    worst = 0
    for week in sorted({week for each in weeks.values() for week in each}, key=lambda each: each.since_ms):
        targets = [target for target, wanted in weeks.items() if week in wanted]
        try:
            for result in _send_week(args, sending, week, targets):
                worst = max(worst, tell(result))
        except MissingExtraError:
            raise
        except FallowError as error:
            say(f"{week.label}: {error}")
            worst = 1
    if not any(weeks.values()):
        show("nothing to send again")
    return worst


@dataclass(frozen=True)
class _Sending:
    sender: EditionSender
    formats: Sequence[Format]
    newest: Week


def _open(args: argparse.Namespace, clock: Clock, sleep: Callable[[float], None]) -> _Sending:
    """Return the targets, formats and week; raises FallowError for wrong flags and settings before a report is sent."""
    settings = config.load({"lake.path": args.lake}, args.config)
    lake = Lake.at(settings.require("lake.path", "--lake")).require()
    targets = parse_targets(args.to or settings.texts("report.to"), settings.text("webhook.kind"))
    if not targets:
        raise UsageError("--to is missing", "give --to, or set report.to (docs/delivering.md)")
    zone_name = args.timezone or settings.text("report.timezone")
    speaks = language(args.lang or settings.text("report.language"), zone_name)
    newest = asked_week(args.week or "last", time_zone(zone_name), clock.now_ms())
    edition = edition_name(Scope.of(args), speaks.code)
    actor = command_actor(args.actor)
    sender = EditionSender.open(lake, settings, targets, edition, actor, newest=newest, clock=clock, sleep=sleep)
    return _Sending(sender, _formats(args.formats), newest)


def _formats(given: Sequence[str] | None) -> tuple[Format, ...]:
    if given is None:
        return DOCUMENTS
    known = [each.name for each in FORMATS]
    names = [name for each in given for name in each.split(",")]
    if wrong := [name for name in names if name not in known]:
        raise UsageError(f"--format: '{wrong[0]}' is not one of {', '.join(known)}", "separate several by commas")
    return tuple(format_named(name) for name in dict.fromkeys(names))


def _weeks(args: argparse.Namespace, sending: _Sending, target: Target) -> tuple[Week, ...]:
    asked = sending.sender.journal, sending.newest, sending.sender.edition, target.shown
    if args.retry:
        return failed_weeks(*asked)
    return (*(missed_weeks(*asked) if args.catch_up else ()), sending.newest)


def _send_week(
    args: argparse.Namespace, sending: _Sending, week: Week, targets: Sequence[Target]
) -> Iterator[DeliveryResult]:
    """Yield the results for one week by target; the report is built only if it is due for a target."""
    sender = sending.sender
    due_ones = [target for target in targets if sender.is_due(week, target, again=args.again)]
    for target in targets:
        if target not in due_ones and args.dry_run:
            show(would(sender.state(week, target)))
        elif target not in due_ones:
            yield sender.send(week, target, None)
    message = _message(args, sending, week, due_ones) if due_ones else None
    for target in due_ones:
        if args.dry_run:
            show(would(sender.state(week, target), message))
        else:
            yield sender.send(week, target, message, again=args.again)


def _message(args: argparse.Namespace, sending: _Sending, week: Week, targets: Sequence[Target]) -> Message:
    flags = argparse.Namespace(**vars(args) | {"week": week.label, "since": None, "until": None})
    edition = open_edition(flags, sending.sender.clock.now_ms())
    try:
        return pack_for(targets, edition.report, week, edition.language, sending.formats)
    except MissingExtraError as error:
        if args.formats is not None:
            raise
        say(f"without PDF: {error}")
        return pack_for(targets, edition.report, week, edition.language, DOCUMENTS[:1])
