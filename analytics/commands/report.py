"""`fallow report`: writes the waste report in one of several formats, or sends it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.language.languages import CODES, language
from analytics.render.report import FORMATS, Format
from analytics.report.model import Asked, build_report
from analytics.report.weeks import parse_week
from analytics.scope import Scope, add_scope_arguments
from analytics.window import REPORT_HISTORY_MS, add_common_arguments, load_window_ledger, open_inputs
from fallow.clock import SystemClock
from fallow.errors import FallowError, UsageError

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.model import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    add_edition_arguments(parser)
    names = [each.name for each in FORMATS]
    parser.add_argument("--format", choices=names, help=f"one of {', '.join(names)} (default {names[0]})")
    parser.add_argument("--out", metavar="FILE", help="where to write it (default: standard output)")
    _add_verbs(parser)


def _add_verbs(parser: argparse.ArgumentParser) -> None:
    from analytics.commands import report_nudge as nudge_command
    from analytics.commands import report_send as send_command

    verbs = parser.add_subparsers(dest="verb", metavar="send|nudge", title="to people")
    # what was given before the verb stays
    send = verbs.add_parser(
        "send",
        help="send it, each edition to each place once",
        epilog=f"example: {send_command.SEND_EXAMPLE}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    send_command.add_send_arguments(send)
    nudge = verbs.add_parser(
        "nudge",
        help="tell holders of their own findings",
        epilog=f"example: {nudge_command.NUDGE_EXAMPLE}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    nudge_command.add_nudge_arguments(nudge)


def add_edition_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say which edition of the report: its week, its part of the fleet, its language."""
    parser.add_argument(
        "--week", metavar="WEEK", help="an ISO week such as 2026-W46, or `last`, in the time zone of the report"
    )
    add_scope_arguments(parser)
    parser.add_argument("--lang", choices=CODES, help="language (or report.language; default en)")
    parser.add_argument(
        "--timezone", metavar="ZONE", help="IANA name such as Europe/Paris (or report.timezone; default UTC)"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the report, or sends it."""
    if args.verb is not None:
        from analytics.commands import report_nudge as nudge_command
        from analytics.commands import report_send as send_command

        _refuse_unused(args)
        return send_command.run_send(args) if args.verb == "send" else nudge_command.run_nudge(args)
    form = format_named(args.format or FORMATS[0].name)
    edition = open_edition(args, SystemClock().now_ms())
    content = form.render(edition.report, edition.language)
    if args.out is not None:
        write_whole(Path(args.out), content)
    elif form.name == "pdf" and sys.stdout.isatty():
        raise UsageError("a PDF is nothing for a terminal", "name a file with --out, or redirect the output")
    elif form.name == "pdf":
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(content.decode())
    return 0


_UNUSED = {
    "send": ("since", "until", "out", "format"),
    "nudge": ("week", "pool", "model", "team", "since", "until", "out", "format"),
}
"""Flags of `fallow report` that say nothing to a verb: left unheard, they would send something else to somebody else."""


def _refuse_unused(args: argparse.Namespace) -> None:
    given = [f"--{name}" for name in _UNUSED[args.verb] if getattr(args, name) is not None]
    if given:
        raise UsageError(
            f"`fallow report {args.verb}` has no use for {' and '.join(given)} before the verb",
            f"leave it out, or see `fallow report {args.verb} --help` for what can be chosen",
        )


@dataclass(frozen=True)
class Edition:
    """A report and the language that it is read in."""

    report: Report
    language: Language


def open_edition(args: argparse.Namespace, now_ms: int) -> Edition:
    """The edition that the flags and settings name; raises UsageError, ConfigError, LakeError and their kinds."""
    inputs = open_inputs(args)
    zone_name = args.timezone or inputs.settings.text("report.timezone")
    speaks = language(args.lang or inputs.settings.text("report.language"), zone_name)
    week = None
    if args.week is not None:
        if args.since is not None or args.until is not None:
            raise UsageError("--week says the whole window", "leave out --since and --until")
        week = parse_week(args.week, speaks.zone, now_ms)
        inputs = replace(inputs, window=week.window)
    or_empty = week is not None and week.since_ms <= now_ms
    ledger = load_window_ledger(inputs, or_empty=or_empty, history_ms=REPORT_HISTORY_MS)
    return Edition(build_report(inputs, ledger, Asked(week, Scope.of(args), speaks.zone)), speaks)


def format_named(name: str) -> Format:
    """The format of that name."""
    return next(each for each in FORMATS if each.name == name)


def write_whole(target: Path, content: bytes) -> None:
    """Writes the file in one step, so that a fault leaves the old one; raises FallowError.

    What is there and is no file, such as /dev/stdout or a pipe, is written to and never replaced.
    """
    partial = target.parent / f".fallow-report.{os.getpid()}.{os.urandom(4).hex()}.part"
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise FallowError(
            f"cannot write {target}: {error.strerror}", "check that the folder exists and is writable"
        ) from error
