"""`fallow lake repair`: repair the faults that `fallow lake check` lists, and remove unused files."""

from __future__ import annotations

import argparse
import json

from analytics.lake_care.repair import Repairer
from analytics.progress import bar
from fallow.clock import SystemClock, format_duration
from fallow.lake_verbs import add_lake_flags, lake_of, settings
from fallow.output import show
from fallow.outside_text import visible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lake_flags(parser)
    parser.add_argument("--yes", action="store_true", help="repair; without this flag the command only lists the steps")


def run(args: argparse.Namespace) -> int:
    """Print each step; return 1 if some steps have to wait, else 0."""
    lake = lake_of(args).require_known()
    grace_ms = settings(args).integer("compaction.grace")
    with bar("days") as progress:
        steps = Repairer(lake, SystemClock().now_ms(), grace_ms, dry_run=not args.yes).run(progress)
    waiting = sum(each.kind == "wait" for each in steps)
    if args.json:
        found = [{"step": each.kind, "file": each.key, "message": each.sentence} for each in steps]
        show(json.dumps({"done": args.yes, "steps": found}, indent=2))
        return int(waiting > 0)
    for each in steps:
        show(visible(each.sentence))
    count = len(steps) - waiting
    text = f"{count} steps done" if args.yes else f"{count} steps to do{'; --yes does them' if count else ''}"
    if waiting:
        text += f"; {waiting} wait: their files changed less than {format_duration(grace_ms)} ago (compaction.grace)"
    show(text)
    return int(waiting > 0)
