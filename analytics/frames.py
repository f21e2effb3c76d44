"""Conversion between Arrow tables of the lake and frames whose times are integer milliseconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import polars as pl
import pyarrow as pa

from fallow import parquet, schema
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable


def milliseconds(data: pa.Table) -> pl.DataFrame:
    """Return an Arrow table as a frame whose timestamps are integer milliseconds since the epoch."""
    frame = pl.from_arrow(data)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(type(frame).__name__)
    stamps = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    return frame.with_columns(pl.col(name).dt.epoch("ms") for name in stamps)


def read_frame(
    files: Iterable[LakeFile],
    table: schema.LakeTable,
    columns: Sequence[str] | None = None,
    on_unusable: OnUnusable | None = None,
) -> pl.DataFrame:
    """Return the named columns of the files (all by default) and `host`, every timestamp as integer milliseconds.

    An unusable file is left out where `on_unusable` is given, which receives it. Raises as `parquet.read` does.
    """
    return milliseconds(parquet.read(files, table, columns, on_unusable))


def arrow(frame: pl.DataFrame, table: schema.LakeTable) -> pa.Table:
    """Return the frame (integer-millisecond times) as an Arrow table of the schema, sorted like the table's files."""
    # Polars copies lists in a quarter of the time that pyarrow takes
    rows = frame.select(table.names).sort(parquet.order_of(table), nulls_last=True, maintain_order=True)
    return rows.to_arrow().cast(parquet.arrow_schema(table))


POLARS: dict[schema.Type, pl.DataType] = {
    schema.Type.TIMESTAMP: pl.Int64(),
    schema.Type.INT16: pl.Int16(),
    schema.Type.INT32: pl.Int32(),
    schema.Type.INT64: pl.Int64(),
    schema.Type.FLOAT: pl.Float32(),
    schema.Type.DOUBLE: pl.Float64(),
    schema.Type.BOOL: pl.Boolean(),
    schema.Type.STRING: pl.String(),
    schema.Type.INT_LIST: pl.List(pl.Int32()),
    schema.Type.DOUBLE_LIST: pl.List(pl.Float64()),
    schema.Type.STRING_LIST: pl.List(pl.String()),
}
"""The type of a column in a frame."""


def kinds(table: schema.LakeTable) -> dict[str, pl.DataType]:
    """Return the type of each of the table's columns in a frame."""
    return {column.name: POLARS[column.type] for column in table.columns}


def empty(table: schema.LakeTable) -> pl.DataFrame:
    """Return an empty frame with the table's columns."""
    return pl.DataFrame(schema=kinds(table))


def shaped(frame: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the frame with exactly these columns, in their order and types; missing ones are null."""
    found = frame.schema
    return frame.select(
        pl.col(name)
        if found.get(name) == kind
        else (pl.col(name) if name in found else pl.lit(None).alias(name)).cast(kind)
        for name, kind in columns.items()
    )


def typed(frame: pl.DataFrame, table: schema.LakeTable) -> pl.DataFrame:
    """Return the frame with the table's columns."""
    return shaped(frame, kinds(table))


def with_mapped(
    rows: pl.DataFrame, by: Sequence[str], schema: Mapping[str, pl.DataType], of: Callable[..., Sequence[object]]
) -> pl.DataFrame:
    """Return the rows, in order, with columns that a function derives from others; one call per combination.

    Args:
        rows: with the columns `by`.
        by: columns that the function takes, in its order; a null is None.
        schema: the new columns.
        of: returns their values.
    """
    known = rows.select(by).unique()
    derived = pl.DataFrame([of(*each) for each in known.iter_rows()], schema=schema, orient="row")
    values = pl.concat([known, derived], how="horizontal")
    return rows.join(values, on=by, how="left", nulls_equal=True, maintain_order="left")


def local_time(moment: str | pl.Expr, zone: str) -> pl.Expr:
    """Return milliseconds since the epoch as times in an IANA time zone."""
    return pl.from_epoch(moment, "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def digest(*parts: object) -> str:
    """Return a short fingerprint of some values."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:32]


def rows_digest(rows: pl.DataFrame) -> str:
    """Return a short fingerprint of rows in any order."""
    flat = rows.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join("+")
        for name, kind in rows.schema.items()
        if isinstance(kind, pl.List)
    )
    return digest(len(rows), int(flat.hash_rows(seed=1).sum() or 0), rows.columns)
