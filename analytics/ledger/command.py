"""`fallow ledger`: GPU-hours by state, as text or JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from analytics.devices import load_inventory
from analytics.inputs import add_common_arguments, load_window_ledger, open_inputs
from analytics.ledger.text import simulated_text, summary_text

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(args: argparse.Namespace) -> int:
    """Prints the summary."""
    inputs = open_inputs(args)
    ledger = load_window_ledger(inputs)
    inventory = load_inventory(inputs.lake)
    said = simulated_text(
        inventory.count_simulated(ledger.inside.stretches["gpu"].unique()), ledger.summary.totals.gpus
    )
    if args.json:
        print(json.dumps(ledger.summary.as_json(), indent=2))
        if said:
            print(f"fallow: {said}", file=sys.stderr)  # the JSON's shape is fixed
    else:
        print("\n\n".join([*([said] if said else []), summary_text(ledger.summary)]))
    return 0
