"""`fallow ledger`: GPU-hours by state, as text or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from analytics.inputs import add_common_arguments, load_window_ledger, open_inputs
from analytics.ledger.text import summary_text

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(args: argparse.Namespace) -> int:
    """Prints the summary."""
    summary = load_window_ledger(open_inputs(args)).summary
    print(json.dumps(summary.as_json(), indent=2) if args.json else summary_text(summary))
    return 0
