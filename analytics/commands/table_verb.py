"""A verb that shows tables, as data: its own flags, and the tables that it shows. One runner does the rest.

The runner opens the lake, reads the window and the scope, asks the verb for its tables and prints them in the format that the
flags name. Every such verb takes the same flags.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from analytics.commands.written_file import out_file, write_out
from analytics.inventory import simulated_text
from analytics.language.language import Language
from analytics.language.languages import CODES, language
from analytics.language.plain_text import PAGE_COLUMNS, page_columns
from analytics.language.quantities import Moment
from analytics.language.sentences import tr
from analytics.money.window_money import Money
from analytics.render.tables import FORMATS, PAGES, VerbAnswer, document
from analytics.report.model import Whole
from analytics.report.weeks import parse_week
from analytics.scope import Scope, add_scope_arguments
from analytics.tables.data_age import data_age
from analytics.tables.table import Column, Table, record
from analytics.window import (
    HISTORY_MS,
    WindowLedger,
    add_common_arguments,
    load_window_ledger,
    open_inputs,
    say_left_out,
)
from fallow.clock import SystemClock, format_ms
from fallow.errors import UsageError
from fallow.output import say
from fallow.outside_text import json_text

FOUR_WEEKS = "28d"
"""Four whole weeks: every hour of the week four times."""


@dataclass(frozen=True)
class VerbInputs:
    """What a verb's tables are made of.

    Attributes:
        whole: the window of the whole fleet.
        scope: what is asked for, and `part` the ledger of it.
        speaks: the language of the answer.
        now_ms: the moment of the call, in milliseconds since the epoch.
    """

    whole: Whole
    scope: Scope
    part: WindowLedger
    speaks: Language
    now_ms: int

    @cached_property
    def money(self) -> Money:
        """The money of the scope."""
        return self.whole.money if self.scope.is_all else self.whole.money.of(self.part.inside, self.whole.inventory)

    @cached_property
    def simulated_gpus(self) -> int:
        """How many of the scope's GPUs are simulated."""
        return self.whole.inventory.count_simulated(self.part.inside.stretches["gpu"].unique())

    @property
    def warning(self) -> str:
        """What people read of simulated GPUs; empty where there are none."""
        return simulated_text(self.simulated_gpus, self.part.summary.totals.gpus)

    @property
    def window(self) -> dict[str, str]:
        """The window as JSON has it."""
        summary = self.part.summary
        return {"since": format_ms(summary.since_ms), "until": format_ms(summary.until_ms)}


Tables = Iterable[Table | None]


@dataclass(frozen=True)
class TableVerb:
    """One verb.

    Attributes:
        title: what is asked, the heading of a page of the tables.
        tables: makes the tables, None for those that have nothing to say; the first is what CSV and Parquet hold.
        flags: adds the verb's own flags.
        check: refuses flags that contradict each other, before the lake is read; raises UsageError.
        not_personal: why a team's or a user's part is refused; empty where it is not.
        since: the window without flags: a length such as 28d, or `all`.
        history_ms: how much time before the window the tables need.
        about: what people read above the tables beside the window; empty sentences are left out.
        content: returns the columns of JSON that is no list of tables, such as one that API and report share, and what
            they read.
    """

    title: str
    tables: Callable[[VerbInputs, argparse.Namespace], Tables]
    flags: Callable[[argparse.ArgumentParser], None] | None = None
    check: Callable[[argparse.Namespace], None] | None = None
    not_personal: str = ""
    since: str = FOUR_WEEKS
    history_ms: int = HISTORY_MS
    about: Callable[[VerbInputs], Iterable[str]] | None = None
    content: Callable[[VerbInputs, argparse.Namespace], tuple[tuple[Column, ...], object]] | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags of every verb that shows tables, and the verb's own."""
        add_common_arguments(parser, since=self.since)
        parser.add_argument("--week", metavar="WEEK", help="an ISO week such as 2026-W46, or `last`")
        add_scope_arguments(parser)
        add_output_arguments(parser)
        if self.flags is not None:
            self.flags(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the tables; return the exit code."""
        if self.check is not None:
            self.check(args)
        if self.not_personal and Scope.of(args).is_personal:
            raise UsageError(self.not_personal, "leave out --team and --user, or name a --pool")
        form = args.format or "text"
        if args.table is not None and form == "json" and self.content is not None:
            raise UsageError("JSON of this verb has the whole answer", "leave out --table, or take --format csv")
        given = open_verb(args, since=self.since, history_ms=self.history_ms)
        answer = self._answer(given, args, form)
        if form == "json" and self.content is not None:
            content = (json_text(record(*self.content(given, args))) + "\n").encode()
        else:
            width = page_columns() if args.out is None else PAGE_COLUMNS
            content = document(answer, form, given.speaks, args.table, width)
        say_left_out(given.whole.inputs.lake, given.whole.ledger)
        write_out(args.out, content, is_text=form != "parquet")
        if answer.warning and form not in PAGES:
            say(answer.warning)
        return 0

    def _answer(self, given: VerbInputs, args: argparse.Namespace, form: str) -> VerbAnswer:
        """The tables, unless the form is JSON that is not made of them."""
        summary = given.part.summary
        about = [
            tr("{since} to {until}", since=Moment(summary.since_ms), until=Moment(summary.until_ms)),
            data_age(given.whole.ledger.counted_back_from_ms, given.now_ms),
            *(self.about(given) if self.about is not None and form in PAGES else ()),
        ]
        return VerbAnswer(
            title=self.title,
            about=tuple(each for each in about if each),
            warning=given.warning,
            facts={"window": given.window, "simulated_gpus": given.simulated_gpus},
            tables=()
            if form == "json" and self.content is not None
            else tuple(each for each in self.tables(given, args) if each is not None),
        )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how the tables are written."""
    parser.add_argument(
        "--lang", choices=CODES, help="language of text, Markdown and HTML (or report.language; default en)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=FORMATS, help="default: text")
    form.add_argument("--json", action="store_const", const="json", dest="format", help="short for --format json")
    form.add_argument("--csv", action="store_const", const="csv", dest="format", help="short for --format csv")
    parser.add_argument("--table", metavar="NAME", help="one table alone (default: all; csv and parquet: the first)")
    parser.add_argument("--out", metavar="FILE", type=out_file, help="file to write (default: -, standard output)")


def open_verb(args: argparse.Namespace, *, since: str = FOUR_WEEKS, history_ms: int = HISTORY_MS) -> VerbInputs:
    """Return the window that the flags name, with `history_ms` before it; raises UsageError, LakeError and their kinds."""
    if args.week is not None and (args.since is not None or args.until is not None):
        raise UsageError("--week says the whole window", "leave out --since and --until")
    if args.week is None and args.since is None and args.until is None and since != "all":
        args.since = since
    inputs, now_ms = open_inputs(args), SystemClock().now_ms()
    speaks = language(args.lang or inputs.settings.text("report.language"), inputs.settings.text("report.timezone"))
    if args.week is not None:
        inputs = replace(inputs, back=None, window=parse_week(args.week, speaks.zone, now_ms).window)
    whole = Whole(inputs, load_window_ledger(inputs, history_ms=history_ms))
    scope = Scope.of(args)
    return VerbInputs(whole, scope, whole.part(scope), speaks, now_ms)
