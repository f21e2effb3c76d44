"""What findings and the report of the last week cost with two weeks of history in the lake, and with sixteen.

Both lakes hold the same last two weeks. Each step runs in a process of its own, in turns: over a finished ledger, and over copies
in which one file of the newest day has been written again, as on a lake whose agents are at work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from analytics.simulation import SimulatedFleet, write_fleet
from benchmarks.fleet_lake import KEPT_IN, UNTIL_MS
from benchmarks.fleet_steps import cost_of
from benchmarks.measure import Figure
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

GPUS, SHORT_DAYS, LONG_DAYS = 64, 14, 112
ROUNDS = 3


def measure() -> Iterator[Figure]:
    """64 simulated GPUs at 5 min: what counts is how many days there are, not how many rows a day has."""
    with tempfile.TemporaryDirectory() as folder:
        lakes = _lakes(Path(os.environ.get(KEPT_IN) or folder) / f"history-{GPUS}x{LONG_DAYS}")
        for lake in lakes.values():
            cost_of("week_findings", str(lake))  # makes the ledger, and keeps it
        live = {days: Path(shutil.copytree(lake, Path(folder, f"live-{days}"))) for days, lake in lakes.items()}
        for step in ("week_findings", "week_report"):
            yield from _figures(step, "", lakes, "finished ledger", lambda _: None)
            yield from _figures(step, "_live", live, "one file of the newest day new", _write_newest_again)


def _figures(
    step: str, suffix: str, lakes: Mapping[int, Path], over: str, prepare: Callable[[Path], None]
) -> Iterator[Figure]:
    """The CPU of a step over each lake, each time after something was done to it, and the ratio."""
    what = step.removeprefix("week_")
    name = f"window_history_{what}{suffix}"
    spent: dict[int, list[float]] = {days: [] for days in lakes}
    for _ in range(ROUNDS):
        for days, lake in lakes.items():
            prepare(lake)
            spent[days].append(cost_of(step, str(lake)).process_cpu_s)
    middle = {days: median(each) for days, each in spent.items()}
    how = f"CPU of `fallow {what}` over the last week with the start of Python, {GPUS} GPUs, {over}, median of {ROUNDS}"
    for days, cpu_s in middle.items():
        yield Figure(f"{name}_{days}d_cpu", cpu_s, "s", f"{days} days in the lake, {how}")
    ratio = middle[LONG_DAYS] / middle[SHORT_DAYS]
    yield Figure(f"{name}_ratio", ratio, "ratio", f"{LONG_DAYS} days over {SHORT_DAYS}, {how}")


def _write_newest_again(lake: Path) -> None:
    """Puts a file of the newest day into the place of itself, as a corrected one would be."""
    file = Lake.at(str(lake)).files("gpu")[-1]
    made_lake(lake).put(file, Path(file.url).read_bytes())


def _lakes(folder: Path) -> dict[int, Path]:
    short, long = folder / "short", folder / "long"
    if not short.exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_fleet(
            made_lake(long),
            SimulatedFleet(gpus=GPUS, days=LONG_DAYS, seed=1, interval_ms=300_000, until_ms=UNTIL_MS),
        )
        first = f"date={utc_day(UNTIL_MS - SHORT_DAYS * DAY_MS)}"

        def earlier(_: str, names: list[str]) -> list[str]:
            return [name for name in names if name.startswith("date=") and name < first]

        shutil.copytree(long, short, ignore=earlier)
    return {SHORT_DAYS: short, LONG_DAYS: long}
