"""`python -m benchmarks.calibration`: what findings promise, against what became of it in the week after.

Simulated fleets of every kind, each from seeds of its own and without the scenes of the demo. Findings of a week are made from what
was known at its end; whether their GPUs stayed unused is read off the week that follows. So every figure is out of sample.
Stored in benchmarks/calibration.json; docs/calibration.md has them as tables.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.decide.reversals import reversals
from analytics.decide.review import run_rules
from analytics.proportions import wilson
from analytics.rules import RULES
from analytics.simulation import write_fleet
from analytics.window import load_whole, load_window_ledger, open_inputs
from analytics.workloads.context import open_context, week_before
from analytics.workloads.surplus import PoolSurplus, demand
from benchmarks.fleet_kinds import KINDS, FleetOfKind
from benchmarks.measure import between_marks
from fallow.clock import DAY_MS, utc_day
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analytics.workloads.model import Context, Finding

GPUS, DAYS, SEEDS = 48, 49, (1, 2, 3)
UNTIL_MS = 20_777 * DAY_MS
WEEKS_BACK = (0, 1)
"""Weeks that are judged, counted from the end: each rests on five weeks of its own before it."""
SURPLUS = "surplus of next week"
SHORT_MAX = 0.05
"""Share of a week's hours in which a pool may be short of GPUs once the surplus has gone."""
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
STORED = Path(__file__).parent / "calibration.json"
PAGE = Path(__file__).parent.parent / "docs" / "calibration.md"


@dataclass
class Kept:
    """GPUs to take back, and how many of them stayed unused; `promised` is the sum of the probabilities of those that have one."""

    gpus: int = 0
    kept: int = 0
    with_promise: int = 0
    promised: float = 0.0

    def add(self, gpus: int, kept: int, promised: float | None) -> None:
        self.gpus += gpus
        self.kept += kept
        if promised is not None:
            self.with_promise += gpus
            self.promised += gpus * promised

    def as_json(self) -> dict[str, object]:
        share = self.kept / self.gpus if self.gpus else None
        return {
            "gpus": self.gpus,
            "kept": self.kept,
            "kept_ratio": None if share is None else round(share, 4),
            "interval_90": None if share is None else [round(bound, 4) for bound in wilson(share, self.gpus)],
            "promised_ratio": round(self.promised / self.with_promise, 4) if self.with_promise else None,
        }


@dataclass
class Tally:
    """What became of GPUs to take back, by grade, by probability, by rule and by kind of fleet."""

    by: dict[str, dict[str, Kept]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Kept)))
    intervals: dict[str, list[Interval]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, finding: Finding, gpus: int, kept: int) -> None:
        outlook, grade = finding.confidence.outlook, finding.confidence.grade
        promised = None if outlook is None else outlook.probability
        self.by["grade"][grade].add(gpus, kept, promised)
        self.by["rule and grade"][f"{finding.rule}, {grade}"].add(gpus, kept, promised)
        self.by["kind and grade"][f"{kind}, {grade}"].add(gpus, kept, promised)
        if promised is not None:
            edge = next(number for number, edge in enumerate(EDGES[1:]) if promised <= edge)
            self.by["probability"][f"{EDGES[edge]:.2f} to {EDGES[edge + 1]:.2f}"].add(gpus, kept, promised)

    def as_json(self) -> dict[str, dict[str, dict[str, object]]]:
        kept = {name: {key: kept.as_json() for key, kept in sorted(own.items())} for name, own in self.by.items()}
        every = [each for own in self.intervals.values() for each in own]
        surplus = {kind: summary(own) for kind, own in sorted(self.intervals.items())} | {"all": summary(every)}
        return kept | {SURPLUS: surplus}


@dataclass(frozen=True)
class Interval:
    """What was said of a pool's next week, in GPUs, and what became of it; `short_ratio` is of its hours."""

    low: int
    high: int
    point: int
    gpus: float
    left: float
    short_ratio: float


def summary(found: list[Interval]) -> dict[str, object]:
    """How often the interval held and the point kept its promise, and how wide the interval is."""
    number = len(found)
    if not number:
        return {"weeks": 0}
    held, kept = (
        sum(each)
        for each in (
            [each.low <= each.left <= each.high for each in found],
            [each.short_ratio <= SHORT_MAX for each in found],
        )
    )
    return {
        "weeks": number,
        "interval_held": held,
        "interval_held_ratio": round(held / number, 4),
        "interval_90": [round(bound, 4) for bound in wilson(held / number, number)],
        "width_mean_gpus": round(sum(each.high - each.low for each in found) / number, 2),
        "pool_mean_gpus": round(sum(each.gpus for each in found) / number, 2),
        "zero_width": sum(each.high == each.low for each in found),
        "point_kept": kept,
    }


def judged(lake: str, weeks_back: int) -> Iterator[tuple[Finding, int, int] | Interval]:
    """The findings of one week that want GPUs back and could be judged: of how many GPUs, and how many stayed unused.

    Of a surplus, what the week after left of it.
    """
    until_ms = UNTIL_MS - 7 * DAY_MS * weeks_back
    window = argparse.Namespace(
        lake=lake, since=utc_day(until_ms - 7 * DAY_MS), until=utc_day(until_ms - DAY_MS), config=None
    )
    inputs = open_inputs(window)
    context = open_context(inputs, load_window_ledger(inputs, whole=load_whole(inputs)), None, until_ms)
    before = week_before(context)
    if before is None:
        return
    for finding in run_rules(before, RULES):
        if finding.surplus is not None:
            yield from _next_week(context, finding.surplus, before.until_ms)
        if not finding.reclaimable or finding.surplus is not None:
            continue
        found = reversals(context, before, [finding])
        if found is not None and found.total.judged:
            wrong = len({gpu for each in found.findings for gpu in each.gpus})
            yield finding, len(finding.reclaimable_gpus), len(finding.reclaimable_gpus) - wrong


def _next_week(context: Context, said: PoolSurplus, until_ms: int) -> Iterator[Interval]:
    devices = context.inventory.devices
    mine = [
        gpu for gpu in devices if (context.inventory.pool(gpu), context.inventory.model(gpu)) == (said.pool, said.model)
    ]
    gpus = pl.DataFrame({"gpu": mine}).with_columns(pool=pl.lit(said.pool), model=pl.lit(said.model))
    hours = demand(context.whole.stretches, gpus, context.until_ms).filter(pl.col("time") >= until_ms)["needed"].sort()
    need = float(hours[math.ceil(said.estimate.quantile * len(hours)) - 1])
    short = hours.filter(hours > said.estimate.wanted)
    low, high = said.estimate.next_week
    if low is not None:
        found = said.estimate
        yield Interval(low, high, found.left, found.gpus, found.gpus - need, len(short) / len(hours))


def main(arguments: list[str]) -> int:
    """Prints and stores the tables; `arguments` are kinds of fleets, by default all."""
    os.environ["FALLOW_LEDGER_WORKERS"] = "1"
    tally = Tally()
    for kind in arguments or KINDS:
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                fleet = FleetOfKind(
                    gpus=GPUS,
                    days=DAYS,
                    seed=100 * seed + len(kind),
                    interval_ms=600_000,
                    until_ms=UNTIL_MS,
                    kind=kind,
                )
                write_fleet(made_lake(folder), fleet)
                for weeks_back in WEEKS_BACK:
                    for each in judged(folder, weeks_back):
                        if isinstance(each, Interval):
                            tally.intervals[kind].append(each)
                        else:
                            tally.add(kind, *each)
            print(f"{kind}, seed {seed}", file=sys.stderr, flush=True)
    found = tally.as_json()
    for name, rows in found.items():
        print(f"\n{name}")
        for key, row in rows.items():
            print(f"  {key:<32} " + ", ".join(f"{column} {value}" for column, value in row.items()))
    if not arguments:
        STORED.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def page(text: str) -> str:
    """The page with the stored figures between its marks."""
    found = json.loads(STORED.read_text(encoding="utf-8"))
    promises = [_promises(name, rows) for name, rows in found.items() if name != SURPLUS]
    for mark, tables in (("promises", promises), ("surplus", [_surplus(found[SURPLUS])])):
        text = between_marks(text, mark, "\n".join(tables))
    return text


def _promises(name: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"| {name} | GPUs | kept | share kept | 90 % interval | promised |", "|---|---|---|---|---|---|"]
    for key, row in rows.items():
        low, high = row["interval_90"]
        shares = f"{row['kept_ratio']:.1%} | {low:.1%} to {high:.1%} | {row['promised_ratio']:.1%}"
        lines.append(f"| {key} | {row['gpus']} | {row['kept']} | {shares} |")
    return "\n".join(lines) + "\n"


def _surplus(rows: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| kind of fleet | weeks of a pool | interval held | share | mean width, GPUs | mean pool, GPUs | zero width | point kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, row in rows.items():
        held = f"{row['interval_held']} | {row['interval_held_ratio']:.1%}" if row["weeks"] else "0 | -"
        widths = (row.get(name, 0) for name in ("width_mean_gpus", "pool_mean_gpus", "zero_width", "point_kept"))
        lines.append(f"| {kind} | {row['weeks']} | {held} | " + " | ".join(map(str, widths)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
