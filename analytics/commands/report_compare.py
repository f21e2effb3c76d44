"""`fallow report --compare`: the window beside another one."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import tzinfo

from analytics.inventory import load_inventory, simulated_text
from analytics.language.language import Language, SentenceList
from analytics.language.languages import language
from analytics.language.sentences import tr
from analytics.render.report.text import for_text, section_text
from analytics.report.compare import Comparisons, compare, window_against
from analytics.report.coverage import LOOKED_BACK_MS
from analytics.report.model import Whole
from analytics.report.weeks import parse_week
from analytics.scope import Scope
from analytics.tables.compare import COMPARISON_COLUMNS, comparison, pool_comparison
from analytics.tables.table import record
from analytics.tables.wording import scope_parts
from analytics.window import Inputs, load_window_ledger, open_inputs
from fallow.clock import SystemClock, Window
from fallow.errors import UsageError
from fallow.outside_text import json_text

FORMATS = ("text", "json")


def run_compare(args: argparse.Namespace) -> str:
    """What there is to print; raises UsageError, ConfigError, LakeError and their kinds."""
    if args.format not in (None, *FORMATS):
        raise UsageError(f"--compare has no format {args.format}", f"take one of {', '.join(FORMATS)}")
    inputs, now_ms = open_inputs(args), SystemClock().now_ms()
    speaks = language(
        args.lang or inputs.settings.text("report.language"), args.timezone or inputs.settings.text("report.timezone")
    )
    if args.week is not None:
        inputs = replace(inputs, window=parse_week(args.week, speaks.zone, now_ms).window)
    found, simulated = _compared(inputs, Scope.of(args), args.compare, speaks.zone, now_ms)
    if args.format == "json":
        return json_text(record(COMPARISON_COLUMNS, found)) + "\n"
    return _as_text(found, simulated, for_text(speaks))


def _compared(inputs: Inputs, scope: Scope, against: str, zone: tzinfo, now_ms: int) -> tuple[Comparisons, str]:
    """Loads the days of both windows, and of the weeks before from which it is known which GPUs there were."""
    if inputs.back is not None:
        inputs = replace(inputs, window=load_window_ledger(inputs, history_ms=LOOKED_BACK_MS).window, back=None)
    since_ms, until_ms = inputs.window.since_ms, inputs.window.until_ms
    if since_ms is None:
        raise UsageError("--compare needs a window", "name one with --week or --since, such as `--since 7d`")
    other = window_against(Window(since_ms, until_ms or now_ms), against, zone)
    first_ms = min(since_ms, other.since_ms or since_ms)
    last_ms = None if until_ms is None else max(until_ms, other.until_ms or until_ms)
    both = replace(inputs, window=Window(first_ms, last_ms))
    ledger = load_window_ledger(both, history_ms=LOOKED_BACK_MS)
    own = load_window_ledger(inputs, or_empty=True, whole=ledger.whole)
    whole = Whole(inputs, own)
    seen = whole.seen(inputs.window, own.inside, Scope())
    now = Window(seen.since_ms, seen.until_ms)
    other = window_against(now, against, zone)
    gpus = own.inside.stretches["gpu"].unique()
    inventory = own.whole.inventory or load_inventory(inputs.lake)
    return compare(whole, scope, now, other), simulated_text(inventory.count_simulated(gpus), len(gpus))


def _as_text(found: Comparisons, simulated: str, said: Language) -> str:
    title = SentenceList([tr("Two windows compared"), *scope_parts(found.scope)], ", ")
    sections = (comparison(found), pool_comparison(found))
    blocks = [title, *([simulated] if simulated else [])]
    parts = [
        *(said.translate(each) for each in blocks),
        *(section_text(each, said) for each in sections if each is not None),
    ]
    return "\n\n".join(parts) + "\n"
