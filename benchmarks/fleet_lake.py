"""The lakes of the fleet's measurements: simulated once, and kept where FALLOW_BENCH_LAKE names a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.decide.kept_findings import FOLDER
from analytics.simulation import SimulatedFleet, plan_fleet, simulated_queue, write_fleet
from analytics.simulation.days import host_days
from analytics.simulation.tables import METADATA, day_tables
from benchmarks.fleet_steps import Cost, command_cost
from fallow import schema
from fallow.clock import DAY_MS, MINUTE_MS, SECOND_MS, parse_day_ms, utc_day
from fallow.lake import Lake, LakeFile
from fallow.parquet import encode
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT_IN = "FALLOW_BENCH_LAKE"
"""Environment variable: folder that keeps simulated lakes by `lake_name`; large ones take many minutes to write."""
UNTIL_MS = 20_700 * DAY_MS
PUBLISHED_EVERY_MS = 5 * MINUTE_MS
"""Time between two publishings of an agent: the length of a file before compaction."""

COUNTERS_SINCE_MS = UNTIL_MS - 60 * DAY_MS
COUNTED_SHARE = 0.01
"""Share of the time in which each cause reduces clocks."""
MIB = 2**20


def fleet_of(gpus: int, days: int, interval_s: int = 10) -> SimulatedFleet:
    """Return a fleet whose rows are `interval_s` apart."""
    return SimulatedFleet(gpus=gpus, days=days, seed=1, interval_ms=interval_s * SECOND_MS, until_ms=UNTIL_MS)


def lake_name(fleet: SimulatedFleet) -> str:
    """Return the folder of a fleet's lake below FALLOW_BENCH_LAKE, such as `1000x7d60s`."""
    return f"{fleet.gpus}x{fleet.days}d{fleet.interval_ms // SECOND_MS}s"


@contextmanager
def simulated(fleet: SimulatedFleet, last_days: int | None = None) -> Iterator[Lake]:
    """Yield a copy of the fleet's lake without derived tables: its files are links, so that only new files take space.

    `last_days` leaves out the days before.
    """
    kept = os.environ.get(KEPT_IN)
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept) as folder:
        whole = Path(kept or folder) / lake_name(fleet)
        if not whole.exists():
            begun = Path(folder) / "begun"
            write_fleet(made_lake(begun), fleet)
            begun.rename(whole)
        first = "" if last_days is None else f"date={utc_day(fleet.until_ms - last_days * DAY_MS)}"
        yield Lake.at(str(linked(whole, Path(folder) / "lake", since=first)))


def linked(lake: Path, copy: Path, since: str = "") -> Path:
    """Return a copy of a lake without derived tables and without folders of days before `since`."""
    derived = {table.name for table in schema.TABLES if table.derived}

    def left_out(_: str, names: list[str]) -> set[str]:
        return {name for name in names if name in derived or (name.startswith("date=") and name < since)}

    try:
        return Path(shutil.copytree(lake, copy, ignore=left_out, copy_function=os.link))
    except shutil.Error:  # the copy lies on another file system
        shutil.rmtree(copy)
        return Path(shutil.copytree(lake, copy, ignore=left_out))


def forget_derived(root: Path) -> None:
    """Remove every derived table."""
    for table in schema.TABLES:
        if table.derived:
            shutil.rmtree(root / table.name, ignore_errors=True)


def forget_findings(root: str) -> None:
    """Remove what commands and pages kept of the rules' findings."""
    shutil.rmtree(Path(root) / FOLDER, ignore_errors=True)


def cold_cost(python: str, root: str, *command: str) -> Cost:
    """Return the cost of a command that finds no findings in the lake."""
    forget_findings(root)
    return command_cost(python, root, *command)


@contextmanager
def without_last_day(root: Path) -> Iterator[None]:
    """Yield the lake as it was a day before its end."""
    newest_ms = max(parse_day_ms(folder.name.removeprefix("date=")) for folder in (root / "gpu").iterdir())
    day = f"date={utc_day(newest_ms)}"
    aside = root.with_suffix(".last-day")
    hidden = [folder for table in root.iterdir() if (folder := table / day).is_dir()]
    for folder in hidden:
        (aside / folder.parent.name).mkdir(parents=True)
        folder.rename(aside / folder.parent.name / day)
    try:
        yield
    finally:
        for folder in hidden:
            (aside / folder.parent.name / day).rename(folder)
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def as_agents_write(fleet: SimulatedFleet, every_ms: int = DAY_MS) -> Iterator[Lake]:
    """Yield a lake with the counters and rates that agents add, in files of this length."""
    with tempfile.TemporaryDirectory() as folder:
        lake, plan = made_lake(Path(folder) / "lake"), plan_fleet(fleet)
        queue = simulated_queue(plan)
        for day in (day for host in plan.hosts for day in host_days(fleet, host)):
            for table, data in day_tables(fleet, day, queue):
                whole = _with_counters(data) if table is schema.GPU else data
                for file, part in _published(table, whole, day.plan.host.name, every_ms):
                    lake.put(file, encode(table, part, METADATA))
        yield lake


def _with_counters(data: pa.Table) -> pa.Table:
    """Add the agent's counters and rates, which the simulation lacks: null columns would cost nothing to read."""
    count = data.num_rows
    rng = np.random.default_rng(count)
    times_ms = np.asarray(data["time"].cast(pa.int64()))
    busy = np.nan_to_num(data["gpu_util_pct"].to_numpy().astype(np.float64)) / 100
    there = pc.is_valid(data["energy_mj"])
    columns: dict[str, pa.Array] = {"counters_since": pa.repeat(pa.scalar(COUNTERS_SINCE_MS), count)}
    for name in (name for name in schema.GPU.names if name.startswith("throttled_")):
        columns[name] = pa.array((COUNTED_SHARE * (times_ms - COUNTERS_SINCE_MS)).astype(np.int64))
    for name in (name for name in schema.GPU.names if name.endswith("_bytes_per_s")):
        rates = pa.array(np.rint(rng.gamma(4, 400, count) * busy) * MIB)
        columns[name] = pc.if_else(pc.is_valid(data["sm_active_pct"]), rates, None)
    for name, values in columns.items():
        field = data.schema.field(name)
        data = data.set_column(
            data.schema.get_field_index(name), field, pc.if_else(there, values.cast(field.type), None)
        )
    return data


def _published(
    table: schema.LakeTable, data: pa.Table, host: str, every_ms: int
) -> Iterator[tuple[LakeFile, pa.Table]]:
    """Yield the rows in the files of an agent's publisher."""
    ordered = data.sort_by("time")
    times = np.asarray(ordered["time"].cast(pa.int64()))
    cuts = np.flatnonzero(np.diff(times // every_ms)) + 1
    for first, last in pairwise([0, *cuts, len(times)]):
        span = 1000 * int(times[first]), 1000 * int(times[last - 1])
        yield LakeFile(table.name, utc_day(int(times[first])), host, *span), ordered.slice(first, last - first)
