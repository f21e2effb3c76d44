"""The edition of a report: flags for week, scope and time zone, and the report that they name."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from analytics.commands.table_verb import open_settings, open_window
from analytics.language.sentences import Language
from analytics.render.report.formats import FORMATS, Format
from analytics.report.model import Asked
from analytics.report.report import Report, build_report
from analytics.report.weeks import parse_week
from analytics.scope import Scope, add_scope_arguments
from analytics.window import READ_MS, REPORT_HISTORY_MS, load_window_ledger


def add_edition_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the week, the scope and the time zone of a report."""
    parser.add_argument(
        "--week", metavar="WEEK", help="ISO week such as 2026-W46, or `last`, in the time zone of the report"
    )
    add_scope_arguments(parser)
    parser.add_argument(
        "--timezone", metavar="ZONE", help="IANA name such as Europe/Paris (or report.timezone; default UTC)"
    )


@dataclass(frozen=True)
class Edition:
    report: Report
    language: Language


def open_edition(args: argparse.Namespace, now_ms: int) -> Edition:
    """Return the edition of these flags and settings. Raises UsageError, ConfigError, LakeError and their kinds."""
    given = open_settings(args)
    speaks = given.speaks
    inputs = open_window(args, "all", speaks.zone, now_ms)
    week = None if args.week is None else parse_week(args.week, speaks.zone, now_ms)
    or_empty = week is not None and week.since_ms <= now_ms
    history_ms = READ_MS if week is None else REPORT_HISTORY_MS  # only a week has a trend
    ledger = load_window_ledger(inputs, or_empty=or_empty, history_ms=history_ms)
    return Edition(build_report(inputs, ledger, Asked(week, Scope.of(args), speaks.zone)), speaks)


def format_named(name: str) -> Format:
    return next(each for each in FORMATS if each.name == name)
