"""`fallow findings`: what can be taken back, as text, JSON or CSV, and what people do about it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from difflib import get_close_matches

from analytics.commands import finding_actions as action_command
from analytics.commands import finding_show as show_command
from analytics.decide.filters import Filters, Selection, choose
from analytics.decide.readiness import waiting_rules
from analytics.decide.review import Review, review
from analytics.decide.totals import totals
from analytics.language.language import ENGLISH
from analytics.render.findings_table import COLUMNS, row_of
from analytics.render.report.text import for_text
from analytics.render.review_text import BLOCKS, Form, review_text
from analytics.rules import RULES
from analytics.tables.data_age import data_age
from analytics.window import add_common_arguments, load_window_ledger, open_inputs, say_left_out
from analytics.workloads.model import CATEGORIES, Finding
from fallow.clock import SystemClock, format_ms
from fallow.csv_text import csv_of
from fallow.errors import UsageError
from fallow.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags and verbs."""
    add_common_arguments(parser)
    chosen = parser.add_argument_group("which findings")
    chosen.add_argument("--rule", action="append", metavar="NAME", help="only this rule (may be repeated)")
    chosen.add_argument("--category", action="append", choices=CATEGORIES, help="only this category (may be repeated)")
    chosen.add_argument("--holder", metavar="NAME", help="only this user")
    chosen.add_argument("--team", metavar="NAME", help="only this team")
    chosen.add_argument(
        "--min-cost",
        type=float,
        metavar="AMOUNT",
        help="only findings of at least this cost; those without a price are left out",
    )
    chosen.add_argument("--limit", type=int, metavar="N", help="only the first N")
    chosen.add_argument(
        "--all", action="store_true", help="include suppressed findings, with reason, author and expiry"
    )
    chosen.add_argument(
        "--details",
        action="store_true",
        help=f"show every finding in full (default: the first {BLOCKS}, and one line for each other)",
    )
    chosen.add_argument("--gone", action="store_true", help="list last week's findings that are gone")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument("--csv", action="store_true", help="one line per finding, with every column")
    verbs = parser.add_subparsers(
        dest="verb", metavar=f"show|{'|'.join(action_command.VERBS)}", title="what to do about single findings"
    )
    show_command.add_verb(verbs)
    action_command.add_verbs(verbs)


def run(args: argparse.Namespace) -> int:
    """Prints the findings, or does what the verb says about some of them."""
    if args.verb == "show":
        return show_command.run(args)
    if args.verb:
        return action_command.run(args)
    _check(args)
    inputs = open_inputs(args)
    ledger = load_window_ledger(inputs)
    found = review(inputs, ledger)
    chosen = choose(found, Filters.from_args(args), with_suppressed=args.all)
    say_left_out(inputs.lake, ledger)
    if args.json:
        show(json.dumps(as_json(found, chosen, args.limit), indent=2))
    elif args.csv:
        write_csv(chosen.listed[: args.limit])
    else:
        form = Form(args.limit, args.details, args.gone)
        if age := data_age(ledger.counted_back_from_ms, SystemClock().now_ms()):
            show(f"{for_text(ENGLISH).translate(age)}\n")
        show(review_text(found, ledger.summary, chosen, form, SystemClock().now_ms()))
    return 0


def _check(args: argparse.Namespace) -> None:
    names = [rule.name for rule in RULES]
    for name in args.rule or ():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the rules are {', '.join(names)}"
            raise UsageError(f"there is no rule '{name}'", hint)
    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit {args.limit} is not above 0", "leave it out for all findings")
    # a comparison with not-a-number is false
    if args.min_cost is not None and not args.min_cost >= 0:
        raise UsageError(f"--min-cost {args.min_cost:g} is not 0 or more", "give an amount of money, such as 100")


def as_json(found: Review, chosen: Selection, limit: int | None) -> dict[str, object]:
    """What `--json` prints; `totals` and `suppressed` are of all that the filters leave, whatever the limit."""
    return {
        "window": {"since": format_ms(found.context.since_ms), "until": format_ms(found.context.until_ms)},
        "totals": totals(chosen.listed).as_json(),
        "sensitivity": {"held_gpu_hours": {f"{minutes}min": hours for minutes, hours in found.sensitivity.items()}},
        "reversals": found.reversals.as_json() if found.reversals else None,
        "suppressed": len(chosen.suppressed),
        "findings": [finding.as_json() for finding in chosen.listed[:limit]],
        "waiting": [each.as_json() for each in waiting_rules(found.context)],
        "gone": [finding.as_json() for finding in chosen.gone],
    }


def write_csv(findings: Sequence[Finding]) -> None:
    """The findings as CSV on standard output; lists are joined, evidence is JSON in one field."""
    show(csv_of(COLUMNS, map(row_of, findings)), end="")
