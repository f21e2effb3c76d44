"""`fallow findings`: what can be taken back, as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING

from analytics.findings.find import find_all
from analytics.findings.text import findings_text
from analytics.inputs import add_common_arguments, load_window_ledger, open_inputs
from analytics.ledger.text import count, moment
from fallow.clock import format_ms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from analytics.findings.model import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument("--csv", action="store_true", help="one line per finding, every column")


def run(args: argparse.Namespace) -> int:
    """Prints the findings."""
    inputs = open_inputs(args)
    ledger = load_window_ledger(inputs)
    findings = find_all(inputs, ledger)
    if args.json:
        window = {"since": format_ms(ledger.summary.since_ms), "until": format_ms(ledger.summary.until_ms)}
        print(json.dumps({"window": window, "findings": [finding.as_json() for finding in findings]}, indent=2))
    elif args.csv:
        write_csv(findings)
    else:
        totals, summary = ledger.summary.totals, ledger.summary
        span = f"{moment(summary.since_ms)} to {moment(summary.until_ms)}"
        print(f"{count(len(findings), 'finding')} over {count(totals.gpus, 'GPU')}, {span}\n")
        print(findings_text(findings))
    return 0


def write_csv(findings: Sequence[Finding]) -> None:
    """The findings as CSV on standard output; lists are joined by a space, evidence is JSON in one field."""
    names = (
        "finding_id", "rule", "sentence", "gpus", "host", "holder", "since", "gpu_hours", "energy_kwh", "cost",
        "confidence", "failed_conditions", "reclaimable", "reclaimable_gpus", "evidence", "next_command", "simulated",
    )  # fmt: skip
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    for finding in findings:
        row = finding.as_json()
        row["gpus"] = " ".join(finding.gpus)
        row["reclaimable_gpus"] = " ".join(finding.reclaimable_gpus)
        row["failed_conditions"] = "; ".join(finding.confidence.failed)
        row["evidence"] = json.dumps(row["evidence"])
        writer.writerow(row)
