"""Parquet in and out: the Arrow form of the schema, one way to write files and one way to read them.

Imports pyarrow: the resident agent processes never import this module.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from fallow import parquet_writer
from fallow.errors import UnusableFileError
from fallow.lake import visible
from fallow.parquet_files import (
    MOST_LISTED,
    UNREADABLE,
    broken,
    check,
    each,
    excess_of_texts,
    metadata,
    open_file,
    oversized,
    small_contents,
    unusable,
)
from fallow.parquet_writer import LIST_ITEM
from fallow.schema import LakeTable, Type
from fallow.stores.model import WHOLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import polars as pl
    import pyarrow.parquet as pq

    from fallow.lake import LakeFile
    from fallow.quarantine import OnUnusable

__all__ = [
    "arrow_schema",
    "check",
    "encode",
    "metadata",
    "open_file",
    "read",
    "small_contents",
    "table_from_rows",
]

_HOST = pa.field("host", pa.string())

_LISTS_ROWS = 10_000
"""Rows that are decoded at a time where they have lists, of which each may be long."""

_ARROW = {
    Type.TIMESTAMP: pa.timestamp("ms", tz="UTC"),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.STRING: pa.string(),
    Type.INT_LIST: pa.list_(pa.int32()),
    Type.DOUBLE_LIST: pa.list_(pa.float64()),
    Type.STRING_LIST: pa.list_(pa.string()),
}


def arrow_schema(table: LakeTable) -> pa.Schema:
    """The Arrow schema of a table; every field may be null, for Arrow checks nullability only in some of its paths."""
    return pa.schema([pa.field(column.name, _ARROW[column.type]) for column in table.columns])


def table_from_rows(table: LakeTable, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows as an Arrow table, as `fallow.parquet_writer.arrow_rows` makes it of the agent's: sorted, with null for what does not fit."""
    return pa.table(parquet_writer.arrow_rows(table, rows)[0]).cast(arrow_schema(table))


def encode(table: LakeTable, data: pa.Table | pl.DataFrame, metadata: Mapping[str, str] | None = None) -> bytes:
    """The rows as one Parquet file, sorted by the table's (gpu, time), with schema version and writer in its metadata.

    Integers in a column of times are milliseconds since the epoch.
    """
    rows = data if isinstance(data, pa.Table) else data.to_arrow()
    by = [name for name in ("gpu", "time") if name in table.names]
    data = rows.select(list(table.names)).cast(arrow_schema(table)).sort_by([(name, "ascending") for name in by])
    return parquet_writer.encode(table, data.cast(_written_schema(table)), metadata)


def _written_schema(table: LakeTable) -> pa.Schema:
    """The table's schema with lists whose values are named as Parquet names them."""
    named = [
        pa.list_(pa.field(LIST_ITEM, kind.value_type)) if pa.types.is_list(kind := _ARROW[column.type]) else kind
        for column in table.columns
    ]
    return pa.schema(zip(table.names, named, strict=True))


def read(
    files: Iterable[LakeFile],
    table: LakeTable,
    columns: Sequence[str] | None = None,
    on_unusable: OnUnusable | None = None,
) -> pa.Table:
    """The rows of the files as one Arrow table with the named columns (all by default) plus `host`, a string.

    `host` is the writer's, from the file's path, save where the table has a column of that name. A column that a
    file lacks is null. A file that cannot be used is told to `on_unusable`, and the files that it hides are read instead.

    Raises UnusableFileError where nobody is to be told, SchemaVersionError, and VanishedFileError, each naming the file.
    """
    names = list(table.names if columns is None else columns)
    schema = pa.schema([pa.field(name, _ARROW[table.column(name).type]) for name in names])
    if "host" not in table.names:
        schema = schema.append(_HOST)
    read_one = partial(_read_one, table=table, schema=schema)
    if on_unusable is None:
        parts = each(files, read_one)
    else:
        usable = partial(_usable, read_one=read_one, on_unusable=on_unusable)
        parts = [part for parts in each(files, usable) for part in parts]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _usable(file: LakeFile, read_one: Callable[[LakeFile], pa.Table], on_unusable: OnUnusable) -> list[pa.Table]:
    """What a file gives, or what those give that it hides."""
    try:
        return [read_one(file)]
    except UnusableFileError as error:
        on_unusable(file, error)
        return [part for hidden in visible(file.hides) for part in _usable(hidden, read_one, on_unusable)]


def _read_one(file: LakeFile, table: LakeTable, schema: pa.Schema) -> pa.Table:
    opened = open_file(file, whole=file.size_bytes <= WHOLE_BYTES)
    there = set(opened.schema_arrow.names) & set(table.names)
    _check_keys(file, table, there, schema)
    try:
        data = _decoded(file, opened, [field for field in schema if field.name in there])
        data.validate(full=True)  # of texts the bytes, each once, for a dictionary has them
        if excess := excess_of_texts(data, all_hosts=not file.host):
            raise oversized(file, excess)
        return pa.table([_filled(field, data, file, table) for field in schema], schema=schema)
    except UNREADABLE as error:
        raise unusable(file, error) from error


def _decoded(file: LakeFile, opened: pq.ParquetFile, fields: Sequence[pa.Field]) -> pa.Table:
    """The columns of the fields, in batches: of these the footer's rows are read, of a whole file as many as each column claims."""
    columns, kinds = [field.name for field in fields], opened.schema_arrow
    for field in fields:
        if pa.types.is_nested(kinds.field(field.name).type) and not pa.types.is_list(field.type):
            raise broken(file, ValueError(f"its column {field.name} is a {kinds.field(field.name).type}"))
    rows, listed = opened.metadata.num_rows, 0
    batches = []
    at_once = _LISTS_ROWS if any(pa.types.is_list(field.type) for field in fields) else max(rows, 1)
    for batch in opened.iter_batches(at_once, columns=columns):
        batches.append(batch)
        listed += sum(len(each.flatten()) for each in batch.columns if pa.types.is_list(each.type))
        if listed > MOST_LISTED:
            raise oversized(file, f"{listed} values in lists, at most {MOST_LISTED}")
    data = pa.Table.from_batches(batches, None if batches else pa.schema(kinds.field(name) for name in columns))
    if data.num_rows != rows:
        raise broken(file, ValueError(f"it has {data.num_rows} rows and says {rows}"))
    return data


def _check_keys(file: LakeFile, table: LakeTable, there: Collection[str], schema: pa.Schema) -> None:
    if absent := [name for name in table.keys if name not in there and name in schema.names]:
        raise broken(file, ValueError(f"it lacks the column {', '.join(absent)}"))


def _filled(field: pa.Field, data: pa.Table, file: LakeFile, table: LakeTable) -> pa.Array | pa.ChunkedArray:
    if field.name in data.column_names:
        return _typed(data.column(field.name), field.type)
    if field.name not in table.names:  # the host of the file's path
        return pa.repeat(pa.scalar(file.host, pa.string()), data.num_rows)
    return pa.nulls(data.num_rows, field.type)


def _typed(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == kind else values.cast(kind)
