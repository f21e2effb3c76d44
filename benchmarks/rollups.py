"""The speed of adding up rollups of 100,000 GPUs over three years: a row per GPU and day, and per pool, day and state.

The first kind is `gpu_lifetime`: a day's file has a row for every GPU. fallow does not keep the second kind yet. A page
over years would need it, in the columns of the ledger.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analytics.frames import arrow, empty
from analytics.states import USED_FIRST
from benchmarks.fleet_lake import MIB, UNTIL_MS
from benchmarks.measure import Figure, cpu_s
from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, utc_day
from fallow.lake import ALL_HOSTS, LakeFile
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fallow.lake import Lake

GPUS, DAYS, POOLS = 100_000, 1095, 50
WRITTEN_DAYS = 60
"""Days of the rows by GPU that are written and read; the rest is arithmetic."""


def measure() -> Iterator[Figure]:
    """Yield bytes and seconds of both rollups: a sum by day of the whole fleet, then of one pool of it."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        lake = made_lake(Path(folder) / "lake")
        by_gpu = _by_gpu(lake, rng)
        by_pool = Path(folder) / "pool_day.parquet"
        _pool_days(rng).write_parquet(by_pool)
        share = DAYS / WRITTEN_DAYS
        how = f"{GPUS:,} GPUs x {DAYS:,} days, one row per GPU and day: {WRITTEN_DAYS} days measured, times {share:.1f}"
        size = sum(path.stat().st_size for path in by_gpu)
        yield Figure("rollup_gpu_day_size", share * size / MIB, "MiB", how)
        spent_s, wall_s = _spent(pl.scan_parquet(by_gpu).group_by("time").agg(pl.sum("day_known_ms", "day_active_ms")))
        yield Figure("rollup_gpu_day_cpu", share * spent_s, "s", f"known and active time by day, {how}")
        yield Figure("rollup_gpu_day_wall", share * wall_s, "s", f"the same by the clock, {how}", goal=1)
        how = f"{DAYS:,} days x {POOLS} pools x {len(USED_FIRST)} states"
        yield Figure("rollup_pool_day_size", by_pool.stat().st_size / MIB, "MiB", how)
        rows = pl.scan_parquet(by_pool)
        spent_s, wall_s = _spent(rows.group_by("time", "state").agg(pl.sum("gpu_ms", "energy_mj")))
        yield Figure("rollup_pool_day_cpu", spent_s, "s", f"GPU time and energy by day and state, {how}")
        yield Figure("rollup_pool_day_wall", wall_s, "s", f"the same by the clock, {how}", goal=1)


def _by_gpu(lake: Lake, rng: np.random.Generator) -> list[Path]:
    """Write files of `gpu_lifetime`, and return their paths."""
    gpus = [f"GPU-{number:08x}-0000-4000-8000-{number:012x}" for number in range(GPUS)]
    hosts = [f"node-{number // 8:05}" for number in range(GPUS)]
    for number in range(WRITTEN_DAYS):
        day_ms = UNTIL_MS - (WRITTEN_DAYS - number) * DAY_MS
        active = rng.integers(0, DAY_MS, GPUS)
        known = {"day_known_ms": np.full(GPUS, DAY_MS), "day_active_ms": active, "used_ms": active * number}
        day = pl.DataFrame({"time": np.full(GPUS, day_ms), "host": hosts, "gpu": gpus, **known})
        rows = pl.concat([empty(schema.GPU_LIFETIME), day], how="diagonal_relaxed")
        file = LakeFile(schema.GPU_LIFETIME.name, utc_day(day_ms), ALL_HOSTS, 0, 0)
        lake.put(file, parquet.encode(schema.GPU_LIFETIME, arrow(rows, schema.GPU_LIFETIME)))
    return sorted(Path(lake.root, schema.GPU_LIFETIME.name).rglob("*.parquet"))


def _pool_days(rng: np.random.Generator) -> pl.DataFrame:
    """Return a row per day, pool and state."""
    days = pl.DataFrame({"time": UNTIL_MS - DAY_MS * np.arange(DAYS, 0, -1)})
    pools = pl.DataFrame({"pool": [f"pool-{number:02}" for number in range(POOLS)]})
    rows = days.join(pools, how="cross").join(pl.DataFrame({"state": USED_FIRST}), how="cross")
    times = rng.integers(0, GPUS // POOLS * 24 * HOUR_MS // len(USED_FIRST), len(rows))
    return rows.with_columns(gpu_ms=pl.Series(times), energy_mj=pl.Series(times * 300))


def _spent(query: pl.LazyFrame) -> tuple[float, float]:
    """Return CPU and wall seconds of a query; the files are warm."""
    query.collect()
    before_s, before = cpu_s(), time.perf_counter()
    query.collect()
    return cpu_s() - before_s, time.perf_counter() - before
