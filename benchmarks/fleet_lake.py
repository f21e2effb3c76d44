"""The lakes that the fleet is measured over: simulated once, and kept where FALLOW_BENCH_LAKE names a folder."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.simulation import SimulatedFleet, plan_fleet, simulated_queue
from analytics.simulation.days import host_days
from analytics.simulation.tables import METADATA, day_tables
from fallow import schema
from fallow.clock import DAY_MS, MINUTE_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.parquet import encode
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT_IN = "FALLOW_BENCH_LAKE"
"""Folder in which simulated lakes stay from one run to the next: 60 million rows take many minutes to write."""
UNTIL_MS = 20_700 * DAY_MS
PUBLISHED_EVERY_MS = 5 * MINUTE_MS
"""How often an agent brings its rows to the lake: so long is a file before it is compacted."""

COUNTERS_SINCE_MS = UNTIL_MS - 60 * DAY_MS
COUNTED_SHARE = 0.01
"""Part of the time in which each cause holds clocks down."""
MIB = 2**20


@dataclass(frozen=True)
class FleetLake:
    """A lake of a simulated fleet, without any derived table, and how many rows of gpu and process it has."""

    lake: Lake
    fleet: SimulatedFleet
    gpu_rows: int
    process_rows: int
    size_bytes: int


def fleet_of(gpus: int, days: int) -> SimulatedFleet:
    """A fleet with rows of 10 s."""
    return SimulatedFleet(gpus=gpus, days=days, seed=1, interval_ms=10_000, until_ms=UNTIL_MS)


@contextmanager
def simulated(fleet: SimulatedFleet, *, small_files: bool = False) -> Iterator[FleetLake]:
    """The fleet's lake: one file per table, host and day, or one for each five minutes as agents publish them."""
    kept = os.environ.get(KEPT_IN)
    with tempfile.TemporaryDirectory() as folder:
        name = f"{fleet.gpus}x{fleet.days}-{fleet.interval_ms}ms-{'small' if small_files else 'whole'}"
        root = Path(kept or folder) / name
        said = root.with_suffix(".json")
        if not said.exists():
            shutil.rmtree(root, ignore_errors=True)
            root.parent.mkdir(parents=True, exist_ok=True)
            lake = made_lake(root)
            facts = _write(lake, fleet, small_files=small_files)
            said.write_text(json.dumps(facts), encoding="utf-8")
        forget_derived(root)
        yield FleetLake(made_lake(root), fleet, **json.loads(said.read_text(encoding="utf-8")))


def forget_derived(root: Path) -> None:
    """Removes every table that is made from others."""
    for table in schema.TABLES:
        if table.derived:
            shutil.rmtree(root / table.name, ignore_errors=True)


@contextmanager
def without_last_day(of: FleetLake) -> Iterator[None]:
    """The lake as it was a day before its end."""
    root, day = Path(of.lake.root), f"date={utc_day(of.fleet.until_ms - DAY_MS)}"
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


def _write(lake: Lake, fleet: SimulatedFleet, *, small_files: bool) -> dict[str, int]:
    rows, size_bytes = {"gpu": 0, "process": 0}, 0
    plan = plan_fleet(fleet)
    queue = simulated_queue(plan)
    for host in plan.hosts:
        for day in host_days(fleet, host):
            for table, data in day_tables(fleet, day, queue):
                whole = _as_agents_write(data) if table is schema.GPU else data
                rows[table.name] = rows.get(table.name, 0) + data.num_rows
                every_ms = PUBLISHED_EVERY_MS if small_files else DAY_MS
                for file, part in _published(table, whole, day.plan.host.name, every_ms):
                    size_bytes += lake.put(file, encode(table, part, METADATA)).size_bytes
    return {"gpu_rows": rows["gpu"], "process_rows": rows["process"], "size_bytes": size_bytes}


def _as_agents_write(data: pa.Table) -> pa.Table:
    """The rows with the counters and rates that an agent reads and the simulation leaves out: null columns cost nothing to read."""
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
    """The rows as an agent's publisher would name and cut them."""
    ordered = data.sort_by("time")
    times = np.asarray(ordered["time"].cast(pa.int64()))
    cuts = np.flatnonzero(np.diff(times // every_ms)) + 1
    for first, last in pairwise([0, *cuts, len(times)]):
        span = 1000 * int(times[first]), 1000 * int(times[last - 1])
        yield LakeFile(table.name, utc_day(int(times[first])), host, *span), ordered.slice(first, last - first)
