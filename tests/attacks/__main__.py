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

from tests.attacks import on_lakes, on_pages
from tests.attacks.on_pages import Attack, Outcome

ATTACKS = (
    Attack(
        "many-windows",
        "a viewer asks for one new window after another, and for ever more of one",
        "64 GPUs x 28 days: 1,100 of 900 MiB, 961 minutes later",
        "within dashboard.memory; known pages p95 < 300 ms",
        on_pages.many_windows,
    ),
    Attack(
        "heavy-reader",
        "a reader asks for 60 new windows, four at a time, while another looks at known pages",
        "known pages p95 2 s, at most 66 s",
        "known pages p95 < 500 ms, at most 10 s",
        on_pages.heavy_reader,
    ),
    Attack(
        "abandoned",
        "200 requests for new windows, hung up at once",
        "100: /healthz silent for 175 s",
        "/healthz < 100 ms on the probes' port; known pages < 1 s, then a new window < 30 s",
        on_pages.abandoned,
    ),
    Attack(
        "slow-clients",
        "64 clients of four kinds: half-sent headers and bodies, unread answers, idle connections",
        "8 half-sent requests: no answer for 421 s",
        "others served in 1 s",
        on_pages.slow_clients,
    ),
    Attack(
        "bad-files",
        "damaged files in the lake",
        "one garbage file stopped the ledger; a FIFO hung it; 9.7 GB for a link",
        "all that was good as before, 1 GiB",
        on_lakes.bad_files,
    ),
    Attack(
        "bombs",
        "a few MB to import that unpack to gigabytes",
        "4 to 6 GB, abort or over 150 s",
        "refused in a sentence, 1 GiB",
        on_lakes.bombs_to_import,
    ),
    Attack(
        "damaged-inputs",
        "damaged files to import",
        "800 without a traceback",
        "no traceback, no hang, 1 GiB",
        on_lakes.damaged_inputs,
    ),
)
"""Those that are larger than the tests of the same promises."""


def main(names: list[str]) -> int:
    """0 where everything held, 1 where something did not, 2 for a name that is none."""
    if unknown := set(names) - {each.name for each in ATTACKS}:
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
