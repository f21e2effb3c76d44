"""What every verb of `fallow plan` starts from and ends with: its flags, the window's ledger and jobs, and how it prints."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analytics.inventory import simulated_text
from analytics.language.language import Language
from analytics.language.languages import CODES, language
from analytics.language.plain_text import moment
from analytics.render.report.text import for_text, section_text
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
from fallow.output import say, show
from fallow.outside_text import json_text

DEFAULT_SINCE = "28d"
"""Four whole weeks: every hour of the week four times."""


@dataclass(frozen=True)
class PlanInputs:
    """The whole window, the part that is asked for, and the language of the answer."""

    whole: Whole
    scope: Scope
    part: WindowLedger
    speaks: Language
    now_ms: int


def add_plan_arguments(parser: argparse.ArgumentParser, *, csv_of: str = "") -> None:
    """Flags that every verb has; `csv_of` says what a line of `--csv` is, where the verb has one."""
    add_common_arguments(parser, since=DEFAULT_SINCE)
    parser.add_argument("--week", metavar="WEEK", help="an ISO week such as 2026-W46, or `last`")
    add_scope_arguments(parser)
    parser.add_argument("--lang", choices=CODES, help="language of the text (or report.language; default en)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    if csv_of:
        form.add_argument("--csv", action="store_true", help=f"one line per {csv_of}")


def open_plan(args: argparse.Namespace, history_ms: int = HISTORY_MS) -> PlanInputs:
    """The window that the flags name, by default the last four weeks, with so much before it; raises UsageError, LakeError and their kinds."""
    if args.week is not None and (args.since is not None or args.until is not None):
        raise UsageError("--week says the whole window", "leave out --since and --until")
    if args.week is None and args.since is None and args.until is None:
        args.since = DEFAULT_SINCE
    inputs, now_ms = open_inputs(args), SystemClock().now_ms()
    speaks = language(args.lang or inputs.settings.text("report.language"), inputs.settings.text("report.timezone"))
    if args.week is not None:
        inputs = replace(inputs, back=None, window=parse_week(args.week, speaks.zone, now_ms).window)
    whole = Whole(inputs, load_window_ledger(inputs, history_ms=history_ms))
    scope = Scope.of(args)
    return PlanInputs(whole, scope, whole.part(scope), speaks, now_ms)


def show_plan(plan: PlanInputs, sections: Sequence[Table | None]) -> None:
    """Prints the sections as text, below the window, the age of the data and what is simulated."""
    say_left_out(plan.whole.inputs.lake, plan.whole.ledger)
    said = for_text(plan.speaks)
    summary = plan.part.summary
    age = data_age(plan.whole.ledger.counted_back_from_ms, plan.now_ms)
    about = [f"{moment(summary.since_ms)} to {moment(summary.until_ms)}", *([said.translate(age)] if age else [])]
    simulated = _simulated(plan)
    blocks = ["\n".join(about), *([said.translate(simulated)] if simulated else [])]
    show("\n\n".join([*blocks, *(section_text(each, said) for each in sections if each is not None)]))


def show_plan_json(plan: PlanInputs, content: Mapping[str, Any]) -> None:
    """Prints the content as JSON, with its window."""
    say_left_out(plan.whole.inputs.lake, plan.whole.ledger)
    summary = plan.part.summary
    window = {"since": format_ms(summary.since_ms), "until": format_ms(summary.until_ms)}
    show(json_text({"window": window, **content}))
    if simulated := _simulated(plan):
        say(simulated)


def _simulated(plan: PlanInputs) -> str:
    gpus = plan.part.inside.stretches["gpu"].unique()
    return simulated_text(plan.whole.inventory.count_simulated(gpus), plan.part.summary.totals.gpus)
