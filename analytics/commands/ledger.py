"""`fallow ledger`: GPU-hours, money and energy by state and by team, pool, ..., as text, JSON or CSV, and as FOCUS cost rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from analytics.commands.ledger_focus import focus_file, write_focus
from analytics.inventory import load_inventory, simulated_text
from analytics.language.language import ENGLISH
from analytics.language.plain_text import folded, moment, page_columns
from analytics.ledger.summary import Summary
from analytics.money.accounts import GROUPS, Account
from analytics.money.window_money import Money, open_money
from analytics.render.accounts_text import table_text
from analytics.render.ledger_text import summary_text
from analytics.render.money_json import account_json, account_row, energy_json, money_json
from analytics.render.money_text import basis_lines, energy_lines, state_amounts
from analytics.render.report.text import for_text
from analytics.report.coverage import Watch
from analytics.scope import Scope, add_scope_arguments, narrow, narrowed
from analytics.tables.data_age import data_age
from analytics.window import add_common_arguments, load_window_ledger, open_inputs, say_left_out
from fallow.clock import SystemClock
from fallow.csv_text import csv_of
from fallow.errors import UsageError
from fallow.output import say, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    add_scope_arguments(parser)
    parser.add_argument(
        "--by", choices=GROUPS, help="a line per pool, team, ...: what it was given, used and what that cost"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument(
        "--focus",
        metavar="FILE",
        type=focus_file,
        help="cost rows per GPU, day, state and holder in FOCUS 1.2, into a .csv or .parquet file",
    )
    form.add_argument(
        "--csv", action="store_true", help="machine-readable, one line per group (the whole without --by)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the window's ledger."""
    if args.focus and args.by:
        raise UsageError("--by groups what is printed, and --focus writes every row", "leave one of them out")
    inputs = open_inputs(args)
    everything = load_window_ledger(inputs)
    inventory = everything.whole.inventory or load_inventory(inputs.lake)
    scope, money = Scope.of(args), open_money(inputs, everything.inside, inventory)
    ledger = narrow(everything, scope, money.costs, inventory, money.owners)
    if not scope.is_all:
        money = money.of(ledger.inside, inventory)
    now_ms = SystemClock().now_ms()
    seen = Watch(everything, inventory, now_ms).seen(
        everything.window, ledger.inside, lambda part: narrowed(part, scope, money.costs, inventory, money.owners)
    )
    ledger = replace(ledger, summary=seen.beside(ledger.summary))
    simulated = inventory.count_simulated(ledger.inside.stretches["gpu"].unique())
    said = simulated_text(simulated, ledger.summary.totals.gpus)
    age = data_age(ledger.counted_back_from_ms, now_ms)
    rows = money.accounts.by(args.by) if args.by else ()
    if args.json:
        show(json.dumps(_as_json(ledger.summary, money, args.by, rows), indent=2))
    elif args.focus:
        write_focus(args.focus, inputs, ledger, money, inventory)
    elif args.csv:
        _write_csv(rows if args.by else (money.accounts.total,), money)
    else:
        width = page_columns()
        blocks = [
            *filter(None, (said, for_text(ENGLISH).translate(age))),
            *_as_text(ledger.summary, money, args.by, rows, width),
        ]
        show(folded("\n\n".join(blocks), width))
    say_left_out(inputs.lake, everything)
    for remark in money.remarks:
        say(remark)
    if said and (args.json or args.csv or args.focus):
        say(said)  # the forms for machines are fixed
    return 0


def _as_json(summary: Summary, money: Money, by: str | None, rows: Sequence[Account]) -> dict[str, object]:
    content = summary.as_json() | {"money": money_json(money), "energy": energy_json(money)}
    if by is not None:
        content["groups"] = {"by": by, "rows": [account_json(row, money) for row in rows]}
    return content


def _as_text(summary: Summary, money: Money, by: str | None, rows: Sequence[Account], width: int) -> list[str]:
    prices, energy = "\n".join(basis_lines(money, width)), "\n".join(energy_lines(money))
    if by is None:
        return [summary_text(summary, state_amounts(money), money.currency, width), prices, energy]
    window = f"{moment(summary.since_ms)} to {moment(summary.until_ms)}"
    return [window, table_text(rows, by, money, width), prices]


def _write_csv(rows: Sequence[Account], money: Money) -> None:
    lines = [account_row(row, money) for row in rows]
    show(csv_of(list(account_row(money.accounts.total, money)), lines), end="")
