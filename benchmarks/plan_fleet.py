"""`fallow plan` over 1,000 GPUs and four weeks with 200,000 jobs: each verb in a separate process.

The lake is a simulated fleet with rows of ten minutes, which takes minutes to make. A finished ledger has one row per
segment, whatever the interval. Each stay of the simulation is a chain of short jobs, up to the wanted number. The
folder FALLOW_BENCH_LAKE keeps the lake with its ledger.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from analytics.commands.plan import VERBS
from analytics.simulation import SCHEDULER, FleetPlan, SimulatedFleet, intensity_csv, plan_fleet, simulated_queue
from analytics.simulation.days import host_days
from analytics.simulation.tables import METADATA, day_tables
from benchmarks.fleet_lake import KEPT_IN, UNTIL_MS
from benchmarks.measure import Figure, cpu_s
from benchmarks.served_pages import served
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.parquet import encode, table_from_rows
from fallow.schema import ALLOCATION, REQUEST, LakeTable
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from analytics.simulation.catalog import Pool
    from analytics.simulation.placement import HostPlan
    from analytics.simulation.stays import Stay

GPUS, DAYS, JOBS, TEAMS, PENDING = 1000, 28, 200_000, 50, 400
ROUNDS = 3
PAGES = ("/capacity", "/queue", "/allocation", "/purchase")
_SHARDS = {"train": 4, "train-old": 3, "serving": 2}
_OWNERS = "kind,name,team,organisation,quota_gpus"
Row = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class ManyPools(SimulatedFleet):
    """A fleet whose pools are divided into ten, with hosts of eight GPUs."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Return the pools. Their cards' tags differ, because hosts are named after them."""
        return tuple(
            replace(pool, name=f"{pool.name}-{nth}", share=pool.share / shards, gpus_per_host=8,
                    card=replace(pool.card, tag=f"{pool.card.tag}-{nth}"))
            for pool in super().pools for shards in (_SHARDS.get(pool.name, 1),) for nth in range(shards)
        )  # fmt: skip


def measure() -> Iterator[Figure]:
    """Yield the costs of every verb, then of the pages."""
    with tempfile.TemporaryDirectory() as folder:
        config = _made(Path(os.environ.get(KEPT_IN) or folder) / f"plan-{GPUS}x{DAYS}")
        how = f"{GPUS} GPUs x {DAYS} days with {JOBS:,} jobs, finished ledger"
        _verb("defrag", config)  # makes the ledger, and keeps it
        for verb in VERBS:
            spent = [_verb(verb.name, config) for _ in range(ROUNDS)]
            of = f"`fallow plan {verb.name} --json` as a whole process, {how}, median of {ROUNDS}"
            yield Figure(f"plan_{verb.name}_cpu", median(cpu for cpu, _ in spent), "s", of)
            yield Figure(f"plan_{verb.name}_wall", median(wall for _, wall in spent), "s", of)
        yield from _pages(config, how)


def _verb(name: str, config: Path) -> tuple[float, float]:
    """Return the CPU and wall seconds of a verb."""
    before_cpu, before_wall = cpu_s(), time.perf_counter()
    command = [sys.executable, "-m", "fallow", "plan", name, "--config", str(config), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return cpu_s() - before_cpu, time.perf_counter() - before_wall


def _pages(config: Path, how: str) -> Iterator[Figure]:
    """Yield the times of each page: in a new time zone, after the window is loaded, and again."""
    from dashboard.pages import PAGES as THERE  # only the pages that exist

    with served(str(config.parent / "lake"), "--config", str(config)) as server:
        for path in (each.path for each in THERE if each.path in PAGES):
            name = f"plan_page_{path[1:]}"
            yield Figure(f"{name}_first", server.ask(path, "?span=28d").spent_s, "s", f"first answer, {how}")
            other = server.ask(path, "?span=28d&lang=fr").spent_s
            yield Figure(f"{name}_loaded", other, "s", f"in another language, {how}")
            yield Figure(f"{name}_cached", server.ask(path, "?span=28d&lang=fr").spent_s, "s", f"again, {how}")


def _made(folder: Path) -> Path:
    """Return the configuration of the fleet, after making its lake if it is missing."""
    config = folder / "fallow.toml"
    if not config.exists():
        shutil.rmtree(folder, ignore_errors=True)
        fleet = ManyPools(gpus=GPUS, days=DAYS, seed=1, interval_ms=10 * MINUTE_MS, until_ms=UNTIL_MS)
        _write(made_lake(folder / "lake"), plan_fleet(fleet))
        owners = [f"account,{_team(nth)},{_team(nth)},research,{GPUS // TEAMS}" for nth in range(TEAMS)]
        (folder / "owners.csv").write_text("\n".join([_OWNERS, *owners, ""]), encoding="utf-8")
        (folder / "intensity.csv").write_text(intensity_csv(fleet), encoding="utf-8")
        settings = {
            "lake": {"path": folder / "lake"},
            "money": {"owners": folder / "owners.csv"},
            "plan": {"carbon": folder / "intensity.csv"},
        }
        lines = [
            f"[{part}]\n{key} = {json.dumps(str(value))}"
            for part, own in settings.items()
            for key, value in own.items()
        ]
        config.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return config


def _write(lake: Lake, plan: FleetPlan) -> None:
    queue = simulated_queue(plan)
    stays = [_inside(plan.fleet, stay) for host in plan.hosts for stay in host.stays if stay.allocated]
    job_ms = sum(until_ms - since_ms for since_ms, until_ms in stays) / JOBS
    rng = np.random.default_rng(plan.fleet.seed)
    numbers = iter(range(1_000_000, 10_000_000))
    for host in plan.hosts:
        for day in host_days(plan.fleet, host):
            for table, data in day_tables(plan.fleet, day, queue):
                if table is not ALLOCATION:
                    _put(lake, table, host.host.name, data)
        _put_allocations(lake, host.host.name, _allocations(plan.fleet, host, job_ms, (numbers, rng)))
    _put(lake, REQUEST, SCHEDULER, table_from_rows(REQUEST, list(_pending(plan, rng))), by="as_of")


def _put_allocations(lake: Lake, host: str, rows: Iterator[Row]) -> None:
    """Write a file per day, as a scheduler's importer does."""
    days: dict[str, list[Row]] = {}
    for row in rows:
        days.setdefault(utc_day(int(str(row["time"]))), []).append(row)
    for own in days.values():
        in_order = sorted(own, key=lambda row: (str(row["gpu"]), str(row["time"])))
        _put(lake, ALLOCATION, host, table_from_rows(ALLOCATION, in_order))


def _put(lake: Lake, table: LakeTable, host: str, data: pa.Table, by: str = "time") -> None:
    """Write the rows of one day."""
    span = pc.min_max(data[by].cast("int64"))
    first, last = span["min"].as_py(), span["max"].as_py()
    lake.put(LakeFile(table.name, utc_day(first), host, 1000 * first, 1000 * last), encode(table, data, METADATA))


def _allocations(
    fleet: SimulatedFleet, host: HostPlan, job_ms: float, drawn_from: tuple[Iterator[int], np.random.Generator]
) -> Iterator[Row]:
    """Yield each stay as a chain of jobs, one row per job and GPU."""
    numbers, rng = drawn_from
    for stay in (stay for stay in host.stays if stay.allocated):
        since_ms, until_ms = _inside(fleet, stay)
        count = max(1, int((until_ms - since_ms) / job_ms + rng.random()))
        cuts = np.sort(rng.uniform(since_ms, until_ms, count - 1)).astype(np.int64) // SECOND_MS * SECOND_MS
        if since_ms == until_ms:
            continue
        for span in pairwise([since_ms, *dict.fromkeys(map(int, cuts)), stay.end_ms]):
            yield from _job(host, stay, span, next(numbers), rng)


def _inside(fleet: SimulatedFleet, stay: Stay) -> tuple[int, int]:
    """Return the part of a stay within the lake's time; empty where there is none."""
    since_ms = min(max(stay.start_ms, fleet.since_ms), fleet.until_ms)
    return since_ms, max(since_ms, min(stay.end_ms, fleet.until_ms))


def _job(host: HostPlan, stay: Stay, span: tuple[int, int], number: int, rng: np.random.Generator) -> Iterator[Row]:
    start_ms, end_ms = span
    eligible_ms = start_ms - int(rng.exponential(40 * 60)) * SECOND_MS
    limit_ms = 2 * (end_ms - start_ms)
    is_over = end_ms < UNTIL_MS
    shared = {
        "time": start_ms, "end": end_ms if is_over else None, "allocation_id": str(number), "scheduler": SCHEDULER,
        "user": stay.user, "account": _team(number), "name": stay.name, "gpu_count": len(stay.gpus), "qos": "normal",
        "partition": host.host.pool.name + ("-long" if limit_ms > 4 * HOUR_MS else ""), "host_count": 1,
        "state": "COMPLETED" if is_over else "RUNNING", "submitted": eligible_ms - 30 * SECOND_MS,
        "eligible": eligible_ms, "planned_end": start_ms + limit_ms, "time_limit_s": limit_ms // SECOND_MS,
        "priority": 100 + number % 7,
    }  # fmt: skip
    yield from ({**shared, "gpu": host.host.gpus[gpu].uuid} for gpu in stay.gpus)


def _pending(plan: FleetPlan, rng: np.random.Generator) -> Iterator[Row]:
    """Yield jobs that wait at the end, in every pool."""
    pools = plan.fleet.pools
    for nth in range(PENDING):
        asked_ms = UNTIL_MS - int(rng.exponential(4 * 3600)) * SECOND_MS
        gpus = int(rng.choice((1, 1, 1, 2, 4, 8, 16)))
        yield {
            "time": asked_ms, "as_of": UNTIL_MS, "eligible": asked_ms, "allocation_id": str(20_000_000 + nth),
            "scheduler": SCHEDULER, "user": "amara", "account": _team(nth), "name": "pending", "gpu_count": gpus,
            "host_count": -(-gpus // 8), "partition": pools[nth % len(pools)].name, "qos": "normal",
            "priority": 100 + nth % 7, "state": "PENDING", "reason": "Resources", "time_limit_s": 24 * 3600,
        }  # fmt: skip


def _team(number: int) -> str:
    return f"team-{number % TEAMS:02d}"
