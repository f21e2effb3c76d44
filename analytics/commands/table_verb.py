"""Verbs that show tables, as data: the flags of a verb, and its tables. One runner serves all of them.

The runner opens the lake, reads the window and the scope, asks the verb for its tables, and prints them in the format
that the flags name. All verbs share the flags for lake, window, scope and output.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property
from typing import Generic, TypeVar

from analytics.commands.written_file import out_file, write_out
from analytics.language.languages import CODES, language
from analytics.language.sentences import PAGE_COLUMNS, Language, Moment, page_columns, tr
from analytics.render.one_screen import SCREEN_LINES
from analytics.render.tables import FORMATS, PAGES, VerbAnswer, document
from analytics.report.model import Asked, Whole
from analytics.report.report import Report
from analytics.report.weeks import parse_week
from analytics.scope import Scope, add_scope_arguments
from analytics.tables.facts import data_age
from analytics.tables.table import Column, Table, record
from analytics.window import (
    READ_MS,
    Inputs,
    WindowLedger,
    add_common_arguments,
    load_window_ledger,
    open_inputs,
    say_left_out,
)
from fallow import config
from fallow.clock import SystemClock, format_ms
from fallow.config import Config
from fallow.errors import UsageError
from fallow.lake import Lake
from fallow.output import say
from fallow.outside_text import json_text

FOUR_WEEKS = "28d"
"""Four whole weeks, with each hour of the week four times."""


@dataclass(frozen=True)
class LakeInputs:
    """Input of tables that need no window.

    Attributes:
        settings: the settings in force.
        speaks: the language of the answer.
        now_ms: the moment of the call, in milliseconds since the epoch.
    """

    settings: Config
    speaks: Language
    now_ms: int

    @cached_property
    def lake(self) -> Lake:
        """The lake that the flags or settings name, which need not exist; raises UsageError if they name none."""
        return Lake.at(self.settings.require("lake.path", "--lake"))

    @property
    def facts(self) -> dict[str, object]:
        """JSON values beside the tables."""
        return {}

    @property
    def about(self) -> Iterator[str]:
        """Sentences above the tables; empty sentences are left out."""
        yield from ()

    @property
    def warning(self) -> str:
        """The warning about simulated GPUs; empty without such GPUs."""
        return ""

    def say_left_out(self) -> None:
        """Print the files that could not be read to standard error, if the tables do not list them."""


@dataclass(frozen=True)
class VerbInputs(LakeInputs):
    """Input of a verb's tables.

    Attributes:
        report: the parts of a report on the window and scope.
    """

    report: Report

    @property
    def whole(self) -> Whole:
        """The window of the whole fleet."""
        return self.report.whole

    @property
    def scope(self) -> Scope:
        return self.report.scope

    @property
    def part(self) -> WindowLedger:
        """The ledger of the scope."""
        return self.report.part

    @property
    def warning(self) -> str:
        return self.report.heading.simulated

    @property
    def window(self) -> dict[str, str]:
        """The window in JSON."""
        summary = self.part.summary
        return {"since": format_ms(summary.since_ms), "until": format_ms(summary.until_ms)}

    @property
    def facts(self) -> dict[str, object]:
        return {"window": self.window, "simulated_gpus": self.report.heading.simulated_gpus}

    @property
    def about(self) -> Iterator[str]:
        summary = self.part.summary
        yield tr("{since} to {until}", since=Moment(summary.since_ms), until=Moment(summary.until_ms))
        yield data_age(self.whole.ledger.counted_back_from_ms, self.now_ms)

    def say_left_out(self) -> None:
        say_left_out(self.whole.inputs.lake, self.whole.ledger)


Tables = Iterable[Table | None]
Basis = TypeVar("Basis", bound=LakeInputs)

WINDOW = ("since", "until", "week")
PEOPLE = ("team", "user")
PARTS = ("pool", "model", *PEOPLE)


@dataclass(frozen=True)
class Verb(ABC, Generic[Basis]):
    """One verb.

    Attributes:
        title: the heading of the page.
        tables: returns the tables, None for a table without content; CSV and Parquet hold the first table.
        flags: adds the flags of the verb.
        check: raises UsageError for flags that contradict each other, before the lake is read.
        refused: shared flags that have no meaning for this verb.
        why: the reason for `refused`, as the error message.
        fails_on: names of tables whose rows make the exit code 1.
        about: returns sentences above the tables, after the window; empty sentences are left out.
        content: returns the columns and the object of JSON that is not a list of tables.
    """

    title: str
    tables: Callable[[Basis, argparse.Namespace], Tables]
    flags: Callable[[argparse.ArgumentParser], None] | None = None
    check: Callable[[argparse.Namespace], None] | None = None
    refused: tuple[str, ...] = ()
    why: str = ""
    fails_on: tuple[str, ...] = ()
    about: Callable[[Basis], Iterable[str]] | None = None
    content: Callable[[Basis, argparse.Namespace], tuple[tuple[Column, ...], object]] | None = None
    since: str = "all"
    """The window without flags: a length such as 28d, or `all`."""
    all_shows: str = "all rows and notes"
    """The rows that --all shows, in its help text."""

    @abstractmethod
    def open(self, args: argparse.Namespace) -> Basis:
        """Return the input of the tables."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_common_arguments(parser, since=self.since)
        parser.add_argument("--week", metavar="WEEK", help="ISO week such as 2026-W46, or `last`")
        add_scope_arguments(parser)
        add_output_arguments(parser, shows=self.all_shows)
        if self.flags is not None:
            self.flags(parser)
        for action in parser._actions:  # noqa: SLF001  # the only way to hide a flag from the help
            if action.dest in self.refused:
                action.help = argparse.SUPPRESS

    def run(self, args: argparse.Namespace) -> int:
        """Print the tables; return the exit code."""
        if given := [f"--{name}" for name in self.refused if getattr(args, name) is not None]:
            raise UsageError(self.why, f"leave out {' and '.join(given)}")
        if self.check is not None:
            self.check(args)
        form = args.format or "text"
        basis = self.open(args)
        has_content = form == "json" and self.content is not None and args.table is None
        tables: tuple[Table, ...] = ()
        if not has_content or self.fails_on:
            tables = tuple(each for each in self.tables(basis, args) if each is not None)
        if self.content is not None and has_content:
            content = (json_text(record(*self.content(basis, args))) + "\n").encode()
        else:
            content = self.written(basis, tables, args)
        basis.say_left_out()
        write_out(args.out, content, is_text=form != "parquet")
        if basis.warning and form not in PAGES:
            say(basis.warning)
        return int(any(each.rows for each in tables if each.name in self.fails_on))

    def written(self, basis: Basis, tables: tuple[Table, ...], args: argparse.Namespace) -> bytes:
        form, width = args.format or "text", page_columns() if args.out is None else PAGE_COLUMNS
        own = self.about(basis) if self.about is not None and form in PAGES else ()
        about = tuple(each for each in (*basis.about, *own) if each)
        answer = VerbAnswer(self.title, about, basis.warning, basis.facts, tables)
        return document(answer, form, basis.speaks, args.table, width=width, most_lines=most_lines(args))


@dataclass(frozen=True)
class TableVerb(Verb[VerbInputs]):
    """A verb over a window of the ledger, and `history_ms` before the window."""

    since: str = FOUR_WEEKS
    history_ms: int = READ_MS

    def open(self, args: argparse.Namespace) -> VerbInputs:
        return open_verb(args, since=self.since, history_ms=self.history_ms)


@dataclass(frozen=True)
class LakeVerb(Verb[LakeInputs]):
    """A verb over the settings and the whole lake, without window and scope."""

    refused: tuple[str, ...] = (*WINDOW, *PARTS)

    def open(self, args: argparse.Namespace) -> LakeInputs:
        return open_settings(args)


def add_output_arguments(
    parser: argparse.ArgumentParser, forms: Sequence[str] = FORMATS, *, shows: str = "all rows and notes"
) -> None:
    """Add the flags for language, format and destination; `shows` names what --all shows."""
    parser.add_argument(
        "--lang", choices=CODES, help="language of text, Markdown and HTML (or report.language; default en)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=forms, help="output format (default: text)")
    form.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    form.add_argument("--csv", action="store_const", const="csv", dest="format", help="the same as --format csv")
    parser.add_argument("--table", metavar="NAME", help="only this table (default: all; CSV and Parquet: the first)")
    parser.add_argument(
        "--all", action="store_true", help=f"show {shows} (default: one screen of text on standard output)"
    )
    parser.add_argument("--out", metavar="FILE", type=out_file, help="write to this file (default: standard output)")


def most_lines(args: argparse.Namespace) -> int | None:
    """Return the most lines of text on standard output; None with --all or --out."""
    return None if args.all or args.out is not None else SCREEN_LINES


def open_settings(args: argparse.Namespace) -> LakeInputs:
    """Return the settings that the flags name, and the language; raises UsageError and ConfigError."""
    settings = config.load({"lake.path": args.lake}, args.config)
    zone_name = getattr(args, "timezone", None) or settings.text("report.timezone")
    speaks = language(args.lang or settings.text("report.language"), zone_name)
    return LakeInputs(settings, speaks, SystemClock().now_ms())


def open_window(args: argparse.Namespace, since: str, zone: tzinfo, now_ms: int) -> Inputs:
    """Return the lake and the window that the flags name, by default from `since`. Raises UsageError and its kinds."""
    if args.week is not None and (args.since is not None or args.until is not None):
        raise UsageError("--week is the whole window", "leave out --since and --until")
    if args.week is None and args.since is None and args.until is None and since != "all":
        args.since = since
    inputs = open_inputs(args)
    return (
        inputs if args.week is None else replace(inputs, back=None, window=parse_week(args.week, zone, now_ms).window)
    )


def open_verb(args: argparse.Namespace, *, since: str = FOUR_WEEKS, history_ms: int = READ_MS) -> VerbInputs:
    """Return the flags' window, with `history_ms` before it. Raises UsageError, LakeError and their kinds."""
    given = open_settings(args)
    inputs = open_window(args, since, given.speaks.zone, given.now_ms)
    whole = Whole(inputs, load_window_ledger(inputs, history_ms=history_ms))
    report = Report(whole, Asked(None, Scope.of(args), given.speaks.zone))
    return VerbInputs(given.settings, given.speaks, given.now_ms, report)
