"""Tries every attack, or those that are named, and says what held: `make attack NAMES='abandoned many-windows'`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.attacks.attacks import ATTACKS
from tests.attacks.model import Attack, Outcome


def main(names: list[str]) -> int:
    """0 where everything held, 1 where something did not, 2 for a name that is none."""
    unknown = set(names) - {each.name for each in ATTACKS}
    if unknown:
        print(f"no attack is called {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in ATTACKS)}")
        return 2
    table = Table("attack", "before", "limit", "now", "", title="Attacks")
    outcomes = []
    for attack in ATTACKS:
        if names and attack.name not in names:
            continue
        began = time.monotonic()
        outcomes.append(outcome := _tried(attack))
        print(f"{attack.name}: {outcome.measured} ({time.monotonic() - began:.0f} s)", flush=True)
        verdict = "held" if outcome.holds else "NOT HELD"
        table.add_row(f"{attack.name}: {attack.what}", attack.before, attack.limit, outcome.measured, verdict)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0 if all(each.holds for each in outcomes) else 1


def _tried(attack: Attack) -> Outcome:
    with tempfile.TemporaryDirectory(dir=os.environ.get("FALLOW_ATTACK_FOLDER")) as folder:
        try:
            return attack.run(Path(folder))
        except Exception:  # noqa: BLE001  # the others are tried all the same
            traceback.print_exc()
            return Outcome("the attack itself failed, see above", holds=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
