"""Rows for a spool, and what of them is in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fallow import parquet, schema

if TYPE_CHECKING:
    from fallow.lake import Lake

DAY_MS = 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS


def ticks(first: int, count: int, start_ms: int = MIDNIGHT_MS) -> list[dict[str, Any]]:
    """Rows of the `gpu` table, ten seconds apart."""
    return [
        {"gpu": "GPU-a", "time": start_ms + number * 10_000, "interval_ms": 10_000, "gpu_util_pct": 1.5}
        for number in range(first, first + count)
    ]


def times(lake: Lake) -> list[int]:
    """The times of all rows of the `gpu` table in the lake."""
    data = parquet.read(lake.files("gpu"), schema.GPU, ["time"])
    return sorted(data.column("time").cast("int64").to_pylist())
