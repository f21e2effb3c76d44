"""How fast the ledger is made from samples, beside DuckDB reading the columns that it needs once, in the same run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.simulation import SimulatedFleet, write_fleet
from benchmarks import fleet_steps
from benchmarks.fleet_lake import forget_derived
from benchmarks.measure import Figure, timed
from fallow.clock import DAY_MS
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

UNTIL_MS = 20_700 * DAY_MS
FLEET = SimulatedFleet(gpus=64, days=7, seed=1, interval_ms=10_000, until_ms=UNTIL_MS)


def measure() -> Iterator[Figure]:
    """64 simulated GPUs for a week at 10 s: 3.9 million rows."""
    with tempfile.TemporaryDirectory() as folder:
        lake = made_lake(Path(folder) / "lake")
        read_columns = fleet_steps.read()
        write_fleet(lake, FLEET)
        rows = sum(pq.read_metadata(file).num_rows for file in Path(lake.root, "gpu").rglob("*.parquet"))
        size_bytes = sum(each.size_bytes for each in lake.store.list(""))

        def build() -> None:
            forget_derived(Path(lake.root))
            load_ledger(lake, LedgerSettings())

        build_cpu, build_wall = timed(build)
        read_cpu, _ = timed(lambda: read_columns(lake.root))
        kept_cpu, kept_wall = timed(lambda: load_ledger(lake, LedgerSettings()))
    how = f"{rows:,} rows, 64 GPUs x 7 days at 10 s, median of 3"
    yield Figure("ledger_rows_per_cpu_s", rows / build_cpu, "rows/s", how)
    yield Figure("ledger_rows_per_wall_s", rows / build_wall, "rows/s", how)
    yield Figure("ledger_over_reading_once", build_cpu / read_cpu, "ratio", f"CPU seconds over DuckDB's, {how}")
    yield Figure("ledger_kept_cpu", kept_cpu, "s", f"the same ledger from the kept tables, {how}")
    yield Figure("ledger_kept_wall", kept_wall, "s", f"the same ledger from the kept tables, {how}")
    yield Figure("simulated_lake_bytes_per_row", size_bytes / rows, "bytes", f"all tables over gpu rows, {how}")
