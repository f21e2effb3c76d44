"""The speed of importing history: rows per second of both importers, from text to published Parquet."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from benchmarks.measure import Figure, timed
from fallow.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 1_000_000
GPUS = 8
START_S = 1_790_000_000


def measure() -> Iterator[Figure]:
    """Yield the rates for a million rows through each importer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        series, smi = folder / "series.csv", folder / "smi.csv"
        _frame().select("time", "gpu", "util", "memory").write_csv(series)
        _write_smi(smi)
        yield from _rate(
            "import_series", folder, "series", "--time", "time", "--gpu", "gpu", "--interval", "10s",
            "--column", f"gpu_util_pct={series}:util", "--column", f"mem_used_bytes={series}:memory",
        )  # fmt: skip
        yield from _rate("import_nvidia_smi", folder, "nvidia-smi", str(smi), "--host", "bench")


def _frame() -> pl.DataFrame:
    generator = np.random.default_rng(1)
    ticks = ROWS // GPUS
    return pl.DataFrame(
        {
            "time": np.repeat(START_S + 10 * np.arange(ticks), GPUS),
            "gpu": np.tile([f"GPU-{index:08d}" for index in range(GPUS)], ticks),
            "util": generator.integers(0, 101, ticks * GPUS),
            "memory": generator.integers(0, 80 * 2**10, ticks * GPUS) * 2**20,
        }
    )


def _write_smi(path: Path) -> None:
    frame = _frame().select(
        pl.from_epoch("time").dt.strftime("%Y/%m/%d %H:%M:%S.000").alias("timestamp"),
        pl.format(" {}", "gpu").alias(" uuid"),
        pl.format(" {} %", "util").alias(" utilization.gpu [%]"),
        pl.format(" {} MiB", pl.col("memory") // 2**20).alias(" memory.used [MiB]"),
        pl.lit(" 345.67 W").alias(" power.draw [W]"),
    )
    frame.write_csv(path)


def _rate(name: str, folder: Path, *arguments: str) -> Iterator[Figure]:
    runs = iter(range(100))

    def once() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            code = main(["import", *arguments, "--lake", str(folder / f"{name}-{next(runs)}")])
        if code:
            raise SystemExit(code)

    cpu, wall = timed(once)
    yield Figure(f"{name}_rows_per_cpu_s", ROWS / cpu, "rows/s", f"{ROWS:,} rows, median of 3, CPU seconds")
    yield Figure(f"{name}_rows_per_wall_s", ROWS / wall, "rows/s", f"{ROWS:,} rows, median of 3, wall seconds")
