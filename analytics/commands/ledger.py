"""`fallow ledger`: GPU-hours, money and energy by state and by team, pool, ..., and as FOCUS cost rows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs, open_verb
from analytics.commands.written_file import write_whole
from analytics.language.sentences import GpuHours, count, plain, tr, tr_many
from analytics.money.accounts import ALLOCATION_GROUPS, GROUPS
from analytics.money.focus import FOCUS_VERSION, Biller, focus_rows
from analytics.money.window_money import Money
from analytics.render.tables import PAGES, as_csv, as_parquet
from analytics.report.coverage import LOOKED_BACK_MS
from analytics.report.parts import LedgerFigures
from analytics.tables.accounts import ACCOUNT_COLUMNS, PricedAccount, account_total, accounts_by, priced_accounts
from analytics.tables.facts import observed
from analytics.tables.idle import idle
from analytics.tables.ledger_columns import LEDGER_COLUMNS
from analytics.tables.money_basis import energy, prices
from analytics.tables.point_samples import point_samples
from analytics.tables.table import Column, column_of, fact, record_column, rows_column
from analytics.tables.waterfall import waterfall
from analytics.window import say_left_out
from fallow.clock import HOUR_MS
from fallow.errors import UsageError
from fallow.lake_marker import read_marker
from fallow.output import say

_ENDINGS = (".csv", ".parquet")


def focus_file(text: str) -> Path:
    """Return the path; raises ArgumentTypeError unless it ends in .csv or .parquet."""
    if (found := Path(text)).suffix not in _ENDINGS:
        raise argparse.ArgumentTypeError(f"'{text}' does not end in {' or '.join(_ENDINGS)}")
    return found


def write_focus(target: Path, given: VerbInputs) -> None:
    """Write the cost rows in one step and print their number; raises FallowError."""
    inputs, ledger, money, inventory = given.whole.inputs, given.part, given.report.money, given.whole.inventory
    marker = read_marker(inputs.lake.store)
    account = inputs.lake.root if marker is None else marker.id
    biller = Biller(inputs.settings.text("money.provider"), account, inputs.lake.root)
    rows = focus_rows(money, ledger.inside.segments, inventory, biller, ledger.window)
    content = as_csv(rows) if target.suffix == ".csv" else as_parquet(rows, {"focus_version": FOCUS_VERSION})
    write_whole(target, content)
    say(f"{plain(str(target))}: {count(rows.height, 'cost row')} in FOCUS {FOCUS_VERSION}")
    unpriced = money.accounts.total.unpriced_ms
    if unpriced:
        say(
            f"{unpriced / HOUR_MS:,.1f} GPU-hours have no price: their costs are empty, which FOCUS does not allow; see"
            " `fallow prices`"
        )


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield the time and cost by state. With --by also those of each group, without it also how certain they are."""
    found, money = given.report.ledger, given.report.money_by(args.by)
    if args.format not in (None, *PAGES):
        _say_remarks(given.whole.money)
    yield accounts_by(args.by, money) if args.by else account_total(money)
    yield waterfall(found)
    if not args.by:
        yield idle(found)
        yield point_samples(found)
    yield prices(money)
    if not args.by:
        yield energy(money)


def _about(given: VerbInputs) -> Iterator[str]:
    found, heading = given.report.ledger, given.report.heading
    gpus = tr_many("{number} {GPU|GPUs}", heading.gpus)
    hosts = tr_many("{number} {host|hosts}", heading.hosts)
    fleet = tr("{gpus} on {hosts}", gpus=gpus, hosts=hosts)
    yield tr("{label}: {value}", label=tr("fleet"), value=fleet)
    yield tr("{label}: {value}", label=tr("observed"), value=observed(found))
    if found.unplaced_ms:
        yield tr(
            "{hours} allocated GPU-hours are on GPUs that are not known: they count as unallocated where no process"
            " shows",
            hours=GpuHours(found.unplaced_ms),
        )
    if found.summary.stopped_gpus:
        yield tr_many(
            "{number} {GPU|GPUs} stopped reporting before the end: the time after that is in no sum",
            found.summary.stopped_gpus,
        )


@dataclass(frozen=True)
class _Grouped:
    """The ledger, and its accounts by pool, team, ..."""

    ledger: LedgerFigures
    money: Money
    by: str

    @property
    def rows(self) -> tuple[PricedAccount, ...]:
        return priced_accounts(self.money, self.by)


GROUPED_COLUMNS = (
    *(column_of("ledger", each) for each in LEDGER_COLUMNS),
    record_column("groups", (fact("by", "words", nullable=False), rows_column("rows", ACCOUNT_COLUMNS)), ""),
)


def _content(given: VerbInputs, args: argparse.Namespace) -> tuple[tuple[Column, ...], object]:
    _say_remarks(given.whole.money)
    figures = given.report.ledger
    return (
        (LEDGER_COLUMNS, figures)
        if args.by is None
        else (GROUPED_COLUMNS, _Grouped(figures, given.report.money_by(args.by), args.by))
    )


def _say_remarks(money: Money) -> None:
    """Print on standard error which names of the site's tables are not in the lake."""
    for remark in money.remarks:
        say(remark)


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        choices=(*GROUPS, *ALLOCATION_GROUPS),
        help="a line per pool, team, ...: GPU-hours allocated and used, and their cost",
    )
    parser.add_argument(
        "--focus",
        metavar="FILE",
        type=focus_file,
        help="write cost rows per GPU, day, state and user (FOCUS 1.2) to a .csv or .parquet file instead of printing",
    )


def _check(args: argparse.Namespace) -> None:
    if args.focus and (args.by or args.format or args.out):
        raise UsageError("--focus writes all rows to its own file", "leave out --by, --format and --out")


_LEDGER = TableVerb(
    tr("Where the money goes"),
    _tables,
    about=_about,
    content=_content,
    flags=_flags,
    check=_check,
    since="all",
    history_ms=LOOKED_BACK_MS,
)
add_arguments = _LEDGER.add_arguments


def run(args: argparse.Namespace) -> int:
    """Print the window's ledger, or write its cost rows; return the exit code."""
    if not args.focus:
        return _LEDGER.run(args)
    _check(args)
    given = open_verb(args, since=_LEDGER.since, history_ms=_LEDGER.history_ms)
    write_focus(args.focus, given)
    say_left_out(given.whole.inputs.lake, given.whole.ledger)
    _say_remarks(given.whole.money)
    if given.warning:
        say(given.warning)
    return 0
