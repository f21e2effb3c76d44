"""`python -m benchmarks [NAME...]`: prints each figure and stores all of them in benchmarks/results.json.

`fleet-full`, `dashboard-full` and `hour` run only where they are named: the first two simulate tens of millions of rows
(see FALLOW_BENCH_LAKE), and the last is an hour of the real clock (see BENCH_HOUR_S). `forecast PATH...` is about traces in files
and stores its figures by itself.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    agent_cost,
    agent_endurance,
    agent_host_reading,
    agent_hour,
    agent_peers,
    agent_probe,
    compaction,
    dashboard_cost,
    demand_forecast,
    fleet_history,
    fleet_rate,
    import_rate,
    judged_fleet,
    labelled_trace,
    ledger_rate,
    packing,
    persistence_models,
    physical_week,
    plan_fleet,
    queue_waits,
    replay,
    rollout,
    scraped_rate,
    scraped_week,
)
from benchmarks.measure import Figure, machine

BENCHMARKS = {
    "agent": agent_cost.measure,
    "peers": agent_peers.measure,
    "probe": agent_probe.measure,
    "reading": agent_host_reading.measure,
    "rollout": rollout.measure,
    "endurance": agent_endurance.measure,
    "compaction": compaction.measure,
    "import": import_rate.measure,
    "scraped": scraped_rate.measure,
    "ledger": ledger_rate.measure,
    "fleet": fleet_rate.measure,
    "history": fleet_history.measure,
    "physical-week": physical_week.measure,
    "scraped-week": scraped_week.measure,
    "dashboard": dashboard_cost.measure,
    "trace": labelled_trace.measure,
    "judged": judged_fleet.measure,
    "persistence": persistence_models.measure,
    "packing": packing.measure,
    "queue": queue_waits.measure,
    "plan": plan_fleet.measure,
    "replay": replay.measure,
}
ON_REQUEST = {
    "fleet-full": fleet_rate.measure_full,
    "dashboard-full": dashboard_cost.measure_full,
    "hour": agent_hour.measure,
}
RESULTS = Path(__file__).parent / "results.json"


def main(names: list[str]) -> int:
    """Runs the named benchmarks, by default all but those of ON_REQUEST; figures of the others are kept."""
    if names[:1] == ["forecast"]:
        return demand_forecast.main(names[1:])
    there = BENCHMARKS | ON_REQUEST
    if unknown := set(names) - set(there):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(there)}", file=sys.stderr)
        return 2
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"figures": {}}
    for name in names or BENCHMARKS:
        for figure in there[name]():
            print(f"{figure.name:<32} {figure.value:>14,.2f} {figure.unit:<8} {figure.how}", flush=True)
            stored["figures"][figure.name] = _as_json(figure)
        stored["machine"] = machine()  # after each of them, for the next one may fail after an hour
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
