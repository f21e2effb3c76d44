"""`python -m benchmarks [NAME...]`: prints each figure and stores all of them in benchmarks/results.json."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import agent_cost, agent_endurance, agent_peers, import_rate, ledger_rate
from benchmarks.measure import Figure, machine

BENCHMARKS = {
    "agent": agent_cost,
    "peers": agent_peers,
    "endurance": agent_endurance,
    "import": import_rate,
    "ledger": ledger_rate,
}
RESULTS = Path(__file__).parent / "results.json"


def main(names: list[str]) -> int:
    """Runs the named benchmarks, all by default; figures of the others are kept."""
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"figures": {}}
    for name in names or BENCHMARKS:
        for figure in BENCHMARKS[name].measure():
            print(f"{figure.name:<32} {figure.value:>14,.2f} {figure.unit:<8} {figure.how}", flush=True)
            stored["figures"][figure.name] = _as_json(figure)
    stored["machine"] = machine()
    RESULTS.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"stored in {RESULTS.parent.name}/{RESULTS.name}")
    return 0


def _as_json(figure: Figure) -> dict[str, object]:
    return dataclasses.asdict(figure) | {
        "value": round(figure.value, 3),
        "taken": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
