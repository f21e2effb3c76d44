"""`fallow report --compare`: a window beside another window."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo

from analytics.commands.table_verb import LakeInputs, Tables, Verb, open_settings, open_window
from analytics.inventory import load_inventory, simulated_text
from analytics.language.sentences import SentenceList, tr
from analytics.render.tables import FORMATS
from analytics.report.compare import Comparisons, compare, window_against
from analytics.report.coverage import LOOKED_BACK_MS
from analytics.report.model import Whole
from analytics.scope import Scope
from analytics.tables.compare import COMPARISON_COLUMNS, comparison, pool_comparison
from analytics.tables.wording import scope_parts
from analytics.window import Inputs, load_window_ledger
from fallow.clock import Window
from fallow.errors import UsageError


@dataclass(frozen=True)
class ComparisonInputs(LakeInputs):
    """Two windows, and the warning about simulated GPUs."""

    found: Comparisons
    simulated: str

    @property
    def warning(self) -> str:
        return self.simulated

    @property
    def about(self) -> Iterator[str]:
        yield SentenceList(scope_parts(self.found.scope), ", ")


class ComparisonVerb(Verb[ComparisonInputs]):
    """`--compare`, with the flags of `fallow report`."""

    def open(self, args: argparse.Namespace) -> ComparisonInputs:
        given = open_settings(args)
        inputs = open_window(args, "all", given.speaks.zone, given.now_ms)
        found, simulated = _compared(inputs, Scope.of(args), args.compare, given.speaks.zone, given.now_ms)
        return ComparisonInputs(given.settings, given.speaks, given.now_ms, found, simulated)


def _compared(inputs: Inputs, scope: Scope, against: str, zone: tzinfo, now_ms: int) -> tuple[Comparisons, str]:
    """Return both windows compared, and the warning about simulated GPUs.

    Reads the weeks before as well: they show which GPUs existed.
    """
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
    gpus = own.inside.segments["gpu"].unique()
    inventory = own.whole.inventory or load_inventory(inputs.lake)
    return compare(whole, scope, now, other), simulated_text(inventory.count_simulated(gpus), len(gpus))


def _tables(given: ComparisonInputs, args: argparse.Namespace) -> Tables:  # noqa: ARG001  # as every verb
    yield comparison(given.found)
    yield pool_comparison(given.found)


def _check(args: argparse.Namespace) -> None:
    if args.format == "pdf":
        raise UsageError("--compare has no format pdf", f"use one of {', '.join(FORMATS)}")


COMPARE = ComparisonVerb(
    tr("Two windows compared"), _tables, check=_check, content=lambda given, _: (COMPARISON_COLUMNS, given.found)
)
