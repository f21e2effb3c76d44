"""A verb that shows tables, as data: its own flags, and the tables that it shows. One runner does the rest.

The runner opens the lake, reads the window and the scope, asks the verb for its tables and prints them in the format that the
flags name. Every such verb takes the same flags.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from analytics.commands.written_file import out_file, write_out
from analytics.inventory import simulated_text
from analytics.language.language import Language
from analytics.language.languages import CODES, language
from analytics.language.quantities import Moment
from analytics.language.sentences import tr
from analytics.render.tables import FORMATS, VerbAnswer, document
from analytics.report.model import Whole
from analytics.report.weeks import parse_week
from analytics.scope import Scope, add_scope_arguments
from analytics.tables.data_age import data_age
from analytics.tables.table import Table
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
    """

    title: str
    tables: Callable[[VerbInputs, argparse.Namespace], Tables]
    flags: Callable[[argparse.ArgumentParser], None] | None = None
    check: Callable[[argparse.Namespace], None] | None = None
    not_personal: str = ""
    since: str = FOUR_WEEKS
    history_ms: int = HISTORY_MS

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
        given = open_verb(args, since=self.since, history_ms=self.history_ms)
        tables = tuple(each for each in self.tables(given, args) if each is not None)
        say_left_out(given.whole.inputs.lake, given.whole.ledger)
        content = document(_answer(self.title, given, tables), args.format, given.speaks, args.table)
        write_out(args.out, content, is_text=args.format != "parquet")
        return 0


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how the tables are written."""
    parser.add_argument(
        "--lang", choices=CODES, help="language of text, Markdown and HTML (or report.language; default en)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=FORMATS, default="text", help="default: text")
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


def _answer(title: str, given: VerbInputs, tables: tuple[Table, ...]) -> VerbAnswer:
    summary = given.part.summary
    gpus = given.part.inside.stretches["gpu"].unique()
    simulated = given.whole.inventory.count_simulated(gpus)
    about = (
        tr("{since} to {until}", since=Moment(summary.since_ms), until=Moment(summary.until_ms)),
        data_age(given.whole.ledger.counted_back_from_ms, given.now_ms),
    )
    warning = simulated_text(simulated, summary.totals.gpus)
    window = {"since": format_ms(summary.since_ms), "until": format_ms(summary.until_ms)}
    facts = {"window": window, "simulated_gpus": simulated}
    return VerbAnswer(title, tuple(each for each in about if each), warning, facts, tables)
