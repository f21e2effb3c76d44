"""`python -m tests.findings.scenarios [--markdown] [NAME...]`: precision and recall of every rule, and what went wrong.

A NAME is a scenario or a file of them.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.findings.scenarios.suite import RULE_NAMES, errors, findings, registered, scenarios, score, table


def main(arguments: list[str]) -> int:
    """Runs the scenarios that are named, or all of them."""
    markdown = "--markdown" in arguments
    names = {name for name in arguments if name != "--markdown"}
    chosen = [
        each
        for module, those in scenarios().items()
        for each in those
        if not names or module in names or each.name in names
    ]
    there, wrong = registered(), []
    spent: Counter[str] = Counter()
    for scenario in chosen:
        begun = time.process_time()
        with TemporaryDirectory() as folder:
            found = findings(scenario, Path(folder))
        spent[scenario.name] = time.process_time() - begun  # type: ignore[assignment]  # seconds
        for rule, error in errors(scenario, (each.rule for each in found)).items():
            wrong.append((scenario.name, rule))
            note = "" if rule in there else " (not registered)"
            print(f"{error}: {rule}{note} in {scenario.name}", file=sys.stderr)
    print(table([score(rule, chosen, wrong) for rule in RULE_NAMES], markdown=markdown))
    slowest = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent.most_common(3))
    print(f"\n{len(chosen)} situations, {sum(spent.values()):.0f} s of CPU; slowest: {slowest}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
