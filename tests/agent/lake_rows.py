"""Rows of a lake as a test compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fallow import parquet, schema

if TYPE_CHECKING:
    from fallow.lake import Lake


def rows_of(lake: Lake, name: str) -> list[dict[str, Any]]:
    """The visible rows of a table, times as integer milliseconds, sorted by time and GPU."""
    table = schema.table(name)
    data = parquet.read(lake.files(name), table)
    stamps = [column.name for column in table.columns if column.type is schema.Type.TIMESTAMP]
    for stamp in stamps:
        data = data.set_column(data.schema.get_field_index(stamp), stamp, data.column(stamp).cast("int64"))
    rows: list[dict[str, Any]] = data.to_pylist()
    return sorted(rows, key=lambda row: (row["time"], row.get("gpu") or ""))
