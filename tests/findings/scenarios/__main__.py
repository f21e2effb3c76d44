"""`python -m tests.findings.scenarios [NAME...]`: precision and recall of every rule, and what went wrong.

A NAME is a scenario or a file of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from analytics.rules import RULES
from tests.findings.scenarios.suite import errors, findings, scenarios


def main(names: list[str]) -> int:
    """Runs the scenarios that are named, or all of them, and prints a Markdown table."""
    every = [(module, each) for module, those in scenarios().items() for each in those]
    chosen = [each for module, each in every if not names or module in names or each.name in names]
    wrong = []
    for scenario in chosen:
        with TemporaryDirectory() as folder:
            found = findings(scenario, Path(folder))
        for rule, error in errors(scenario, (each.rule for each in found)).items():
            wrong.append((rule, error))
            print(f"{error}: {rule} in {scenario.name}", file=sys.stderr)
    print(
        "| rule | must fire | found | look-alikes | false | precision | recall |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for name in (rule.name for rule in RULES):
        must, alike = (sum(name in getattr(each, kind) for each in chosen) for kind in ("fires", "look_alike_of"))
        false, hits = wrong.count((name, "false")), must - wrong.count((name, "missing"))
        shares = (f"{hits / whole:.3f}" if whole else "-" for whole in (hits + false, must))
        print(f"| {name} | {must} | {hits} | {alike} | {false} | {' | '.join(shares)} |")
    print(f"\n{len(chosen)} situations", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
