"""`fallow lake warm`: make the findings of the usual windows ahead, and keep them in the lake."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace

from analytics.decide.kept_findings import LastWeek, WindowFindings
from analytics.decide.review import RuleFindings
from analytics.language.languages import site_zone
from analytics.ledger.summary import data_end_ms
from analytics.progress import bar
from analytics.report.model import Whole
from analytics.report.weeks import ALL, SPANS, week_of
from analytics.window import Inputs, load_whole, load_window_ledger
from fallow.clock import AskedWindow, SystemClock, Window
from fallow.errors import LakeError
from fallow.lake_verbs import add_lake_flags, lake_of, settings
from fallow.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lake_flags(parser)
    parser.add_argument(
        "--since",
        metavar="TIME",
        action="append",
        help=f"a window up to the end of the data; can be repeated (default: {', '.join(SPANS)} and the last week)",
    )


def run(args: argparse.Namespace) -> int:
    """Make what the lake does not have yet; return 0."""
    inputs = Inputs(lake_of(args).require_known(), Window(), settings(args))
    ledger, now_ms = load_whole(inputs), SystemClock().now_ms()
    asked = list(_windows(inputs, args.since, data_end_ms(ledger.host_ends, now_ms) if ledger.host_ends else now_ms))
    with bar("windows") as progress:
        for number, window in enumerate(asked, 1):
            own = replace(inputs, window=window)
            whole = Whole(own, load_window_ledger(own, or_empty=True, whole=ledger, now_ms=now_ms))
            _ = whole.found.last_week
            _must_be_kept(whole.found, WindowFindings, LastWeek)
            _must_be_kept(whole.decision_found, WindowFindings)
            progress(number / len(asked))
    if args.json:
        show(
            json.dumps(
                {"windows": [{"since_ms": each.since_ms, "until_ms": each.until_ms} for each in asked]}, indent=2
            )
        )
    else:
        show(f"the lake has the findings of {len(asked)} windows")
    return 0


def _windows(inputs: Inputs, since: list[str] | None, newest_ms: int) -> Iterator[Window]:
    """Yield the windows. Raises UsageError and its kinds."""
    zone = site_zone(inputs.settings)
    for span in since or SPANS:
        yield AskedWindow(None if span == ALL else span, None, zone).before(newest_ms)
    if since is None:
        yield week_of(newest_ms, zone).before().window


def _must_be_kept(found: RuleFindings, *kinds: type[WindowFindings | LastWeek]) -> None:
    """Raise LakeError unless the lake has the findings now."""
    is_unseen = found.context.inside.segments.is_empty()
    if not is_unseen and any(found.place.read(kind) is None for kind in kinds):
        raise LakeError(
            f"the lake at {found.context.lake.root} did not keep the findings",
            "run the command as a user who may write the lake, or run `fallow ledger` first if the ledger is not kept",
        )
