"""Between Arrow tables of the lake and frames whose times are integer milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from fallow import parquet, schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from fallow.lake import LakeFile


def milliseconds(data: pa.Table) -> pl.DataFrame:
    """An Arrow table as a frame whose timestamps are integer milliseconds since the epoch."""
    frame = pl.from_arrow(data)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(type(frame).__name__)
    stamps = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    return frame.with_columns(pl.col(name).dt.epoch("ms") for name in stamps)


def read_frame(files: Iterable[LakeFile], table: schema.Table, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The named columns of the files (all by default) and `host`, every timestamp as integer milliseconds."""
    return milliseconds(parquet.read(files, table, columns))


def arrow(frame: pl.DataFrame, table: schema.Table) -> pa.Table:
    """The frame with integer-millisecond times as an Arrow table of the schema."""
    columns: dict[str, Any] = {name: frame[name].to_arrow() for name in table.names}
    return parquet.table_from_columns(table, columns)
