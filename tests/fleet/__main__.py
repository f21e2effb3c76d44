"""Run a fleet's agents through days of their own clocks, with troubles, and report every row's fate: `make fleet`.

Real processes over the test driver, a real store, and a known truth: which host's agent ran when. 50 hosts by 10 days
take about a quarter of an hour, because a row covers ten minutes instead of ten seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path

from tests.fleet.days import FleetDays, Size

_MOST_TOLD = 25


def main() -> int:
    """0 where every row is there once, the lake is clean and nothing was unexpected."""
    size, kept = _asked()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no agent is left behind
    folder = Path(kept or tempfile.mkdtemp(prefix="fallow-fleet-", dir=os.environ.get("FALLOW_FLEET_FOLDER")))
    folder.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    days = FleetDays(size, folder, say=lambda text: print(text, flush=True))
    try:
        judge = days.run()
    finally:
        for host in getattr(days, "hosts", []):
            host.kill()
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{size} in {time.monotonic() - began_s:.0f} s")
    for what, figure in (*sorted(days.told.items()), *judge.seen.items()):
        print(f"  {what}: {figure}")
    wrong = [*days.failures, *judge.wrong]
    print(*wrong[:_MOST_TOLD], sep="\n")
    print(f"{len(wrong)} things are wrong" if wrong else "Every row is there once, and the lake is clean.")
    return 1 if wrong else 0


def _asked() -> tuple[Size, str | None]:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__, allow_abbrev=False)
    helps = {
        "seed": "which troubles befall whom, and when",
        "interval_min": "minutes of a row",
        "keep_days": "retention of gpu rows",
    }
    for each in fields(Size):
        choices = ("folder", "s3") if each.name == "store" else None
        flag, kind = f"--{each.name.replace('_', '-')}", type(each.default)
        parser.add_argument(flag, type=kind, default=each.default, choices=choices, help=helps.get(each.name))
    parser.add_argument("--folder", help="where everything lies and stays; default: a temporary one that goes")
    asked = vars(parser.parse_args())
    kept = asked.pop("folder")
    return Size(**asked), kept


if __name__ == "__main__":
    sys.exit(main())
