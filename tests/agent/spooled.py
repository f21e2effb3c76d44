"""Rows for a spool, and what of them is in the lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fallow import parquet, schema

if TYPE_CHECKING:
    from agent.spool.spool import Spool, SpooledRow
    from fallow.lake import Lake

DAY_MS = 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS


@dataclass
class SetClock:
    """A clock that a test sets."""

    moment_ms: int = MIDNIGHT_MS

    def now_ms(self) -> int:
        return self.moment_ms

    def monotonic_s(self) -> float:
        return self.moment_ms / 1000


def ticks(first: int, count: int, start_ms: int = MIDNIGHT_MS) -> list[dict[str, Any]]:
    """Rows of the `gpu` table, ten seconds apart."""
    return [
        {"gpu": "GPU-a", "time": start_ms + number * 10_000, "interval_ms": 10_000, "gpu_util_pct": 1.5}
        for number in range(first, first + count)
    ]


def waiting(spool: Spool) -> list[SpooledRow]:
    """Every row that waits to be published, in order."""
    segments = spool.segments_until(spool.last_seq(1_000_000) or 0)
    return sorted((row for segment in segments for row in spool.rows_of(segment)), key=lambda row: row.seq)


def times(lake: Lake) -> list[int]:
    """The times of all rows of the `gpu` table in the lake."""
    data = parquet.read(lake.files("gpu"), schema.GPU, ["time"])
    return sorted(data.column("time").cast("int64").to_pylist())


def rows_of(lake: Lake, name: str) -> list[dict[str, Any]]:
    """The visible rows of a table, times as integer milliseconds, sorted by time and GPU."""
    table = schema.table(name)
    data = parquet.read(lake.files(name), table)
    stamps = [column.name for column in table.columns if column.type is schema.Type.TIMESTAMP]
    for stamp in stamps:
        data = data.set_column(data.schema.get_field_index(stamp), stamp, data.column(stamp).cast("int64"))
    rows: list[dict[str, Any]] = data.to_pylist()
    return sorted(rows, key=lambda row: (row["time"], row.get("gpu") or ""))
