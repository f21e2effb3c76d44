"""`python -m benchmarks.calibration`: the promises of findings, against the week after.

The fleets are simulated: every kind, from separate seeds and without the scenes of the demo. Findings of a week use
only facts that were known at its end. The following week shows whether their GPUs stayed unused, so every figure is out
of sample. Stored in benchmarks/calibration.json; docs/calibration.md shows them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from analytics.decide.reversals import reversals
from analytics.decide.review import run_rules
from analytics.names import JOINER
from analytics.proportions import wilson
from analytics.rules import RULES
from analytics.simulation import write_fleet
from analytics.states import IN_USE
from analytics.window import load_whole, load_window_ledger, open_inputs
from analytics.workloads.context import open_context, week_before
from benchmarks.calibration_page import write_page
from benchmarks.fleet_kinds import KINDS, FleetOfKind
from fallow.clock import DAY_MS, utc_day
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.workloads.model import Context, Finding

GPUS, DAYS, SEEDS = 48, 49, (1, 2, 3)
UNTIL_MS = 20_777 * DAY_MS
WEEKS_BACK = (0, 1)
"""Judged weeks, counted from the end. Each is based on the five weeks before it."""
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
STORED = Path(__file__).parent / "calibration.json"


@dataclass
class Kept:
    """GPUs to reclaim, and the number that stayed unused; `promised` is the sum of their known probabilities."""

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
    """The outcome of GPUs to reclaim, by grade, by probability, by rule and by kind of fleet."""

    by: dict[str, dict[str, Kept]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Kept)))

    def add(self, kind: str, finding: Finding, gpus: int, kept: int, kept_a_day: int) -> None:
        outlook, grade = finding.confidence.outlook, finding.confidence.grade
        promised = None if outlook is None else outlook.probability
        if outlook is not None and outlook.day_probability is not None:
            self.by["grade for one day"][str(finding.confidence.day_grade)].add(
                gpus, kept_a_day, outlook.day_probability
            )
            self.by["probability of one day"][_class(outlook.day_probability)].add(
                gpus, kept_a_day, outlook.day_probability
            )
        self.by["grade"][grade].add(gpus, kept, promised)
        self.by["rule and grade"][f"{finding.rule}, {grade}"].add(gpus, kept, promised)
        self.by["kind and grade"][f"{kind}, {grade}"].add(gpus, kept, promised)
        if promised is not None:
            self.by["probability"][_class(promised)].add(gpus, kept, promised)

    def as_json(self) -> dict[str, dict[str, dict[str, object]]]:
        return {name: {key: kept.as_json() for key, kept in sorted(own.items())} for name, own in self.by.items()}


def _class(promised: float) -> str:
    edge = next(number for number, edge in enumerate(EDGES[1:]) if promised <= edge)
    return f"{EDGES[edge]:.2f} to {EDGES[edge + 1]:.2f}"


def judged(lake: str, weeks_back: int) -> Iterator[tuple[Finding, int, int, int]]:
    """Yield a week's judged findings with GPUs to reclaim: their GPUs, and those unused for a week and for a day."""
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
        if not finding.reclaimable or finding.pool is not None:
            continue
        found = reversals(context, before, [finding])
        if found is not None and found.total.judged:
            wrong = len({gpu for each in found.findings for gpu in each.gpus})
            gpus = len(finding.reclaimable_gpus)
            yield finding, gpus, gpus - wrong, gpus - _used_in_a_day(context, finding, before.until_ms)


def _used_in_a_day(context: Context, finding: Finding, until_ms: int) -> int:
    """Return how many of a finding's GPUs were used on the day after a moment, by its user or, without one, by any."""
    rows = context.whole.segments.filter(pl.col("time") < until_ms + DAY_MS, pl.col("end") > until_ms)
    used = rows.filter(pl.col("gpu").is_in(finding.reclaimable_gpus), pl.col("state").is_in(IN_USE))
    if finding.user is not None:
        theirs = pl.col("user").str.split(JOINER).list.set_intersection(finding.user.split(JOINER)).list.len() > 0
        used = used.filter(theirs | pl.col("user").is_null())
    return used["gpu"].n_unique()


def main(arguments: list[str]) -> int:
    """Print and store the tables; `arguments` are kinds of fleets, by default all."""
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
                        tally.add(kind, *each)
            print(f"{kind}, seed {seed}", file=sys.stderr, flush=True)
    found = tally.as_json()
    for name, rows in found.items():
        print(f"\n{name}")
        for key, row in rows.items():
            print(f"  {key:<32} " + ", ".join(f"{column} {value}" for column, value in row.items()))
    if not arguments:
        STORED.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
