"""The figures of a published trace, from its files through the importer into DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces" / "genai26"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not TRACES.is_dir(), reason="the trace genai26 is not there (its licence keeps it out)"),
]

FIGURES = """
select count(gpu_util_pct) as duty,
       count(mem_used_bytes) as memory,
       count(*) filter (gpu_util_pct is not null and mem_used_bytes is not null) as both,
       avg(gpu_util_pct) as mean_duty,
       100.0 * count(*) filter (gpu_util_pct = 0) / duty as at_zero,
       100.0 * count(*) filter (gpu_util_pct < 5) / duty as below_5,
       100.0 * count(*) filter (gpu_util_pct > 50) / duty as above_50,
       avg(mem_used_bytes) filter (gpu_util_pct = 0) / 1e9 as memory_at_zero_gb
from read_parquet('{lake}/gpu/**/*.parquet', hive_partitioning = true)
"""
MOSTLY_IDLE = """
select count(*) filter (idle > 0.5), count(*)
from (select gpu, avg((gpu_util_pct = 0)::int) as idle
      from read_parquet('{lake}/gpu/**/*.parquet', hive_partitioning = true)
      where gpu_util_pct is not null group by gpu)
"""


def test_the_published_figures_come_out(fallow_import: Callable, place: str) -> None:
    arguments = [
        "series", "--time", "timestamp_anon", "--gpu", "container_ip", "--interval", "57s",
        "--column", f"gpu_util_pct={TRACES / 'duty.csv.gz'}:value",
        "--column", f"mem_used_bytes={TRACES / 'memory.csv.gz'}:value",
    ]  # fmt: skip
    done = fallow_import(*arguments)
    assert [each["rows_kept"] for each in done.summary["files"]] == [157_417, 161_413]
    assert done.summary["notes"][0] == "157415 of 161415 rows have a partner in every file"
    with duckdb.connect() as connection:
        figures = connection.sql(FIGURES.format(lake=place)).fetchall()[0]
        assert figures[:3] == (157_417, 161_413, 157_415)
        assert figures[3:] == pytest.approx((7.025178, 66.8473, 72.2736, 2.3257, 25.78), abs=5e-3)
        assert figures[3] == pytest.approx(7.025178, abs=1e-6)
        assert figures[4:7] == pytest.approx((66.8473, 72.2736, 2.3257), abs=5e-5)
        assert connection.sql(MOSTLY_IDLE.format(lake=place)).fetchall() == [(125, 143)]
    again = fallow_import(*arguments)
    assert again.published["gpu"] == (0, 161_415, 0)
    assert all(each["files_written"] == 0 for each in again.summary["tables"])
