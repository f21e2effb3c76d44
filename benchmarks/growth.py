"""How costs grow with GPUs and with days, and one fleet of any size made and served on this machine.

`python -m benchmarks growth` stores growth.json and draws docs/growth.svg.
`python -m benchmarks scale --gpus N --days D` first prints its estimate from measured parts (alone with --estimate),
then makes the lake and its ledger on every CPU, asks verbs and pages for the last week, and stores the costs in
largest.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from analytics.render.html import svg
from analytics.tables.palette import LIGHT
from benchmarks.fleet_lake import KEPT_IN, MIB, cold_cost, fleet_of, forget_findings, lake_name, simulated
from benchmarks.fleet_steps import command_cost, step_cost
from benchmarks.measure import Figure, cpu_s
from benchmarks.served_pages import served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markupsafe import Markup

    from analytics.simulation import SimulatedFleet
    from benchmarks.fleet_steps import Cost
    from fallow.lake import Lake

GPUS = (64, 250, 1000, 4000)
"""Over a week in rows of 60 s."""
DAYS = (7, 28, 90, 1095)
"""Of 64 GPUs in rows of 15 min."""
STORED = Path(__file__).parent / "growth.json"
LARGEST = Path(__file__).parent / "largest.json"
PICTURE = Path(__file__).parent.parent / "docs" / "growth.svg"
PARTS = {
    "build_cpu_s": "the ledger from samples",
    "findings_cpu_s": "findings of the last week",
    "report_cpu_s": "report of the last week",
}
_COLOURS = {"build_cpu_s": "mark", "findings_cpu_s": "high", "report_cpu_s": "text"}

Points = dict[str, dict[str, dict[str, float]]]
"""By axis (`gpus`, `days`), then by its value, the costs of PARTS and `build_peak_mib`."""


def measure(python: str = sys.executable, gpus: Sequence[int] = GPUS, days: Sequence[int] = DAYS) -> Iterator[Figure]:
    """Yield the exponent of each cost over each axis, after storing and drawing the points.

    Those of another Python are stored as `before` and drawn as dashed lines.
    """
    both: dict[str, Points] = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    stored = both.setdefault("now" if python == sys.executable else "before", {"gpus": {}, "days": {}})
    fleets = [("gpus", each, fleet_of(each, 7, 60), None) for each in gpus]
    fleets += [("days", each, fleet_of(64, max(DAYS), 900), each) for each in days]
    for axis, value, fleet, last_days in fleets:
        with simulated(fleet, last_days) as lake:
            stored[axis][str(value)] = _costs(python, lake)
        STORED.write_text(json.dumps(both, indent=1) + "\n", encoding="utf-8")
    PICTURE.write_text(picture(both) + "\n", encoding="utf-8")
    for axis in stored:
        for part, words in PARTS.items():
            points = curve(stored[axis], part)
            if len(points) > 1:
                how = f"{words} over {axis} from {points[0][0]:,} to {points[-1][0]:,}: 1 is proportional, 0 constant"
                yield Figure(f"growth_{axis}_{part.removesuffix('_cpu_s')}", exponent(points), "exponent", how)


def _costs(python: str, lake: Lake) -> dict[str, float]:
    build = step_cost(python, "ledger", lake.root)
    spent = {
        verb: median(cold_cost(python, lake.root, verb, "--since", "7d").cpu_s for _ in range(3))
        for verb in ("findings", "report")
    }
    costs = {"build_cpu_s": build.cpu_s, "build_peak_mib": build.peak_bytes / MIB}
    return {name: round(cost, 3) for name, cost in (costs | {f"{each}_cpu_s": s for each, s in spent.items()}).items()}


def curve(points: Mapping[str, Mapping[str, float]], part: str) -> list[tuple[int, float]]:
    """Return a cost by the value of its axis, in order."""
    return sorted((int(value), costs[part]) for value, costs in points.items())


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Return the exponent of a cost's growth between the two largest points: smaller ones are mostly startup."""
    (low, cost), (high, more) = points[-2:]
    return math.log(more / cost) / math.log(high / low)


def picture(both: Mapping[str, Points]) -> str:
    """Return the curves as a drawing of two panels with logarithmic axes; those of before are dashed."""
    parts = [svg.boxes([(0, 0, 760, 300)], {"fill": LIGHT.card})]
    titles = {"gpus": "GPUs, a week in rows of 60 s", "days": "days of 64 GPUs in rows of 15 min"}
    for place, (axis, title) in enumerate(titles.items()):
        parts += _panel({name: points[axis] for name, points in both.items()}, title, 48 + 380 * place)
    for place, (part, words) in enumerate(PARTS.items()):
        x = 48 + 230 * place
        parts.append(svg.curve([(x, 288), (x + 18, 288)], svg.stroked(_COLOURS[part]) | {"stroke-width": "2"}))
        parts.append(svg.text(x + 24, 292, words))
    name = "CPU seconds over GPUs and over days, with logarithmic axes; dashed: before"
    drawn = str(svg.drawing(760, 300, parts, name))
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def _panel(both: Mapping[str, dict[str, dict[str, float]]], title: str, left: float) -> Iterator[Markup]:
    width, top, height = 310.0, 34.0, 205.0
    values = sorted({int(value) for points in both.values() for value in points})
    costs = [each[part] for points in both.values() for each in points.values() for part in PARTS]
    decades = range(math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs))) + 1)

    def x(value: float) -> float:
        return left + 8 + (width - 16) * math.log(value / values[0]) / math.log(values[-1] / values[0])

    def y(cost: float) -> float:
        return top + height * (1 - (math.log10(cost) - decades[0]) / (decades[-1] - decades[0]))

    yield svg.text(left, 18, title, kind="b")
    yield svg.levels(left, left + width, (y(10**each) for each in decades))
    yield svg.labels(((left - 6, y(10**each) + 4, f"{10**each:g} s") for each in decades), "end")
    yield svg.labels(((x(value), top + height + 16, f"{value:,}") for value in values), "middle")
    for name, points in both.items():
        dashes = {"stroke-dasharray": "4 4"} if name == "before" else {}
        for part in PARTS:
            line = [(x(value), y(cost)) for value, cost in curve(points, part)]
            marks = [svg.curve(line, {"stroke-width": "2"} | dashes), svg.dots(line)]
            yield svg.group(marks, svg.stroked(_COLOURS[part]))


def main(arguments: list[str]) -> int:
    """Make and serve one fleet, and store what it cost; exit code 1 where it does not fit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale")
    parser.add_argument("--gpus", type=int, default=5000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--interval", type=int, default=60, help="seconds between rows (default: 60)")
    parser.add_argument("--estimate", action="store_true", help="print what it would cost, and end")
    asked = parser.parse_args(arguments)
    fleet = fleet_of(asked.gpus, asked.days, asked.interval)
    fits = _estimate(fleet)
    if asked.estimate or not fits:
        return int(not fits)
    began_s, is_kept = cpu_s(), Path(os.environ.get(KEPT_IN, ""), lake_name(fleet)).exists()
    with simulated(fleet) as lake:
        found = ({} if is_kept else {"simulation_cpu_s": cpu_s() - began_s}) | _served(lake)
    facts = {"gpus": asked.gpus, "days": asked.days, "interval_s": asked.interval, "rows": _rows(fleet)}
    LARGEST.write_text(json.dumps(facts | {name: round(value, 2) for name, value in found.items()}, indent=1) + "\n")
    print(LARGEST.read_text(encoding="utf-8"))
    return 0


def _rows(fleet: SimulatedFleet) -> int:
    return fleet.gpus * fleet.days * 86_400_000 // fleet.interval_ms


def _estimate(fleet: SimulatedFleet) -> bool:
    """Print time and disk by the parts of the fleet measured last; return whether the disk has room."""
    if not LARGEST.exists():
        return True  # nothing is measured yet
    parts = json.loads(LARGEST.read_text(encoding="utf-8"))
    rows = _rows(fleet)
    share = rows / parts["rows"]
    size_gb = share * parts["lake_bytes"] / 1e9
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    names = ("simulation_cpu_s", "build_cpu_s")
    spent = ", ".join(
        f"{name.split('_')[0]} {share * parts[name] / 60:,.0f} CPU min" for name in names if name in parts
    )
    print(f"{rows:,} rows, {size_gb:,.1f} GB ({free_gb:,.0f} GB free): {spent}, by {parts['rows']:,} measured rows")
    return 1.2 * size_gb < free_gb


def _served(lake: Lake) -> dict[str, float]:
    """Return the costs of the ledger on every CPU, and of verbs and pages over the kept one."""
    before_s, before = cpu_s(), time.perf_counter()
    build = command_cost(sys.executable, lake.root, "ledger", "--since", "7d", workers=0)
    found = {"build_cpu_s": cpu_s() - before_s, "build_wall_s": time.perf_counter() - before}
    found |= {
        "build_peak_mib": build.peak_bytes / MIB,
        "lake_bytes": float(sum(each.size_bytes for each in lake.store.list(""))),
    }
    for verb in ("findings", "report"):
        found |= _of(verb, cold_cost(sys.executable, lake.root, verb, "--since", "7d"))
    forget_findings(lake.root)
    with served(lake.root) as server:
        found["dashboard_start_s"] = server.start_s
        for path in ("/", "/capacity", "/queue"):
            found[f"page_{path[1:] or 'overview'}_s"] = server.ask(path, "?span=7d").spent_s
        found["dashboard_peak_mib"] = server.largest_ever_bytes() / MIB
    return found


def _of(name: str, cost: Cost) -> dict[str, float]:
    return {f"{name}_cpu_s": cost.cpu_s, f"{name}_wall_s": cost.wall_s, f"{name}_peak_mib": cost.peak_bytes / MIB}
