"""`python -m benchmarks [NAME...]` prints every figure as before | now | goal, and stores it in results.json.

`hour`, `quarter`, `growth` and `scale --gpus N --days D` run only when they are named. The first takes an hour of the
real clock (see BENCH_HOUR_S), the others simulate tens of millions of rows (see FALLOW_BENCH_LAKE).
`--before PYTHON [NAME...]` asks the fallow of that Python for the figures of SCALE, and stores them in before.json.
`forecast PATH...` and `next-week [PATH...]` read traces from files and store their own figures.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import (
    agent_cost,
    agent_endurance,
    agent_host_reading,
    agent_hour,
    agent_peers,
    agent_probe,
    busy,
    compaction,
    demand_forecast,
    growth,
    import_rate,
    judged_fleet,
    labelled_trace,
    next_week,
    packing,
    page_speed,
    persistence_models,
    physical_week,
    plan_fleet,
    queue_waits,
    reader_requests,
    replay,
    rollout,
    rollups,
    scale,
    scale_page,
    scraped_rate,
    scraped_week,
    storage,
    strangers,
)
from benchmarks.measure import Figure, machine

SCALE = {
    "ledger": scale.ledger,
    "fleet": scale.fleet,
    "history": scale.history,
    "quarter": scale.quarter,
    "growth": growth.measure,
}
"""Measurements that the fallow of another Python can be asked for too."""
BENCHMARKS = {
    "agent": agent_cost.measure,
    "peers": agent_peers.measure,
    "probe": agent_probe.measure,
    "reading": agent_host_reading.measure,
    "rollout": rollout.measure,
    "endurance": agent_endurance.measure,
    "compaction": compaction.measure,
    "storage": storage.measure,
    "requests": reader_requests.measure,
    "import": import_rate.measure,
    "scraped": scraped_rate.measure,
    "ledger": scale.ledger,
    "fleet": scale.fleet,
    "history": scale.history,
    "physical-week": physical_week.measure,
    "scraped-week": scraped_week.measure,
    "pages": page_speed.measure,
    "rollups": rollups.measure,
    "trace": labelled_trace.measure,
    "judged": judged_fleet.measure,
    "strangers": strangers.measure,
    "busy": busy.measure,
    "persistence": persistence_models.measure,
    "packing": packing.measure,
    "queue": queue_waits.measure,
    "plan": plan_fleet.measure,
    "replay": replay.measure,
}
ON_REQUEST = {
    "quarter": scale.quarter,
    "growth": growth.measure,
    "hour": agent_hour.measure,
}
RESULTS = Path(__file__).parent / "results.json"
BEFORE = Path(__file__).parent / "before.json"


def main(names: list[str]) -> int:
    """Run the named benchmarks, by default all except those of ON_REQUEST; figures of the others are kept."""
    if names[:1] == ["forecast"]:
        return demand_forecast.main(names[1:])
    if names[:1] == ["next-week"]:
        return next_week.main(names[1:])
    if names[:1] == ["scale"]:
        return growth.main(names[1:])
    if names[:1] == ["--before"]:
        return _measure_before(names[1], names[2:])
    there = BENCHMARKS | ON_REQUEST
    if unknown := set(names) - set(there):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(there)}", file=sys.stderr)
        return 2
    before = _stored(BEFORE)["figures"]
    print(f"{'':<34} {'before':>12} {'now':>12} {'goal':>7}")
    for name in names or BENCHMARKS:
        for figure in there[name]():
            print(_line(figure, before.get(figure.name)), flush=True)
            _store(RESULTS, figure, machine=machine())  # each at once, because the next may fail after an hour
    scale_page.write()
    print(f"stored in {RESULTS.parent.name}/{RESULTS.name}")
    return 0


def _measure_before(python: str, names: list[str]) -> int:
    """Store the figures of the fallow that another Python has installed, with its commit."""
    found = subprocess.run(
        [python, "-P", "-c", "import fallow; print(fallow.__path__[0])"], check=True, capture_output=True, text=True
    )
    command = ["git", "-C", found.stdout.strip(), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    for name in names or SCALE:
        for figure in SCALE[name](python):
            print(_line(figure), flush=True)
            _store(BEFORE, figure, commit=commit, machine=machine())
    return 0


def _line(figure: Figure, before: dict[str, Any] | None = None) -> str:
    was = "" if before is None else f"{before['value']:,.2f}"
    goal = "" if figure.goal is None else f"{figure.goal:,g}"
    return f"{figure.name:<34} {was:>12} {figure.value:>12,.2f} {goal:>7} {figure.unit:<8} {figure.how}"


def _stored(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"figures": {}}


def _store(path: Path, figure: Figure, **facts: object) -> None:
    """Put a figure among those of a file, with facts about all of them."""
    stored = _stored(path) | facts
    stored["figures"][figure.name] = _as_json(figure)
    path.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _as_json(figure: Figure) -> dict[str, object]:
    facts = {name: fact for name, fact in dataclasses.asdict(figure).items() if fact is not None}
    return facts | {"value": round(figure.value, 3), "taken": datetime.now(UTC).strftime("%Y-%m-%d")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
