"""Parquet in and out: the Arrow form of the schema, one way to write files and one way to read them.

Imports pyarrow: the resident agent processes never import this module.
"""

from __future__ import annotations

import io
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from fallow import __version__
from fallow.errors import BrokenFileError, LakeError, SchemaVersionError, VanishedFileError
from fallow.schema import SCHEMA_VERSION, Column, Table, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from fallow.lake import LakeFile
    from fallow.stores.objects import ObjectFile

_Read = TypeVar("_Read")

_HOST = pa.field("host", pa.string())

ROW_GROUP_ROWS = 138_240
"""16 GPU-days of 10 s rows: large enough that pages compress, small enough to skip by GPU (docs/storage.md)."""

_VERSION_KEY = "fallow_schema_version"
_CHECKSUM_KEY = "fallow_crc32"
"""CRC-32 of all before the footer: Parquet's own checksums, one a page, are read by few libraries."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 4 + len(_MAGIC)
"""What ends a file: the length of the footer before it, and the magic bytes."""

_WHOLE_BYTES = 8 << 20
"""Files up to this size are held in memory whole; of larger ones only what is decoded."""

_REQUESTS = 8
"""Files of an object store that are fetched at a time: each at most a few MB in memory before it is decoded."""

_UNREADABLE = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for damaged files (a footer of noise may be a UnicodeDecodeError) and foreign column types."""

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


def arrow_type(column: Column) -> pa.DataType:
    return _ARROW[column.type]


def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of a table; every field may be null, for Arrow checks nullability only in some of its paths."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in table.columns])


def table_from_rows(table: Table, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows as an Arrow table in the table's schema; a key that a row lacks is null, one that the table lacks is an error."""
    known = set(table.names)
    for row in rows:
        if unknown := set(row) - known:
            raise LakeError(f"the table '{table.name}' has no column {', '.join(sorted(unknown))}")
    # Arrow reads integers as epoch milliseconds for a timestamp column
    return pa.table(
        [_array([row.get(column.name) for row in rows], column) for column in table.columns], schema=arrow_schema(table)
    )


def _array(values: Sequence[object], column: Column) -> pa.Array:
    """The values in the column's type; one that does not fit becomes null, so that it never keeps the others back."""
    try:
        return pa.array(values, arrow_type(column))
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return pa.array([_fitting(value, column) for value in values], arrow_type(column))


def _fitting(value: object, column: Column) -> object:
    try:
        pa.array([value], arrow_type(column))
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None
    return value


def table_from_columns(table: Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Columns as an Arrow table in the table's schema; integers become timestamps where the schema says so."""
    return pa.table(
        [columns[column.name].cast(arrow_type(column)) for column in table.columns], schema=arrow_schema(table)
    )


def encode(table: Table, data: pa.Table, metadata: Mapping[str, str] | None = None) -> bytes:
    """The data as one Parquet file, sorted by the table's (gpu, time), with schema version and writer in its metadata.

    zstd-3, dictionaries only where values repeat, deltas for what climbs (measurements: docs/storage.md).
    """
    by = [name for name in ("gpu", "time") if name in table.names]
    sorted_data = data.select(list(table.names)).cast(arrow_schema(table)).sort_by([(name, "ascending") for name in by])
    extra = {_VERSION_KEY.encode(): str(SCHEMA_VERSION), b"fallow_writer": f"fallow {__version__}"}
    extra |= {key.encode(): value for key, value in (metadata or {}).items()}
    # timestamps and counters climb within a GPU; the rest repeats itself and is best as a dictionary
    delta = {
        column.name: "DELTA_BINARY_PACKED"
        for column in table.columns
        if column.type is Type.TIMESTAMP or (column.name == "energy_mj" and column.type is Type.INT64)
    }
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        sorted_data.schema.with_metadata(extra),
        compression="zstd",
        compression_level=3,
        use_dictionary=[column.name for column in table.columns if column.name not in delta],
        column_encoding=delta,
        store_schema=True,
    ) as writer:
        writer.write_table(sorted_data.replace_schema_metadata(extra), row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata({_CHECKSUM_KEY: str(zlib.crc32(sink.getbuffer()))})
    return sink.getvalue()


def read(files: Iterable[LakeFile], table: Table, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of the files as one Arrow table with the named columns (all by default) plus `host`, a string.

    `host` is the writer's, from the file's path, save where the table has a column of that name. A column that an
    older file lacks is null. Raises BrokenFileError and SchemaVersionError, each naming the file.
    """
    names = list(table.names if columns is None else columns)
    schema = pa.schema([pa.field(name, arrow_type(table.column(name))) for name in names])
    if "host" not in table.names:
        schema = schema.append(_HOST)
    parts = _each(files, partial(_read_one, table=table, schema=schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def small_contents(files: Iterable[LakeFile]) -> list[bytes | None]:
    """The bytes of each file that is small enough to be held whole; None for one that is not, or cannot be read as it is.

    Raises LakeError where an object store does not answer.
    """
    return _each(files, _content)


def _content(file: LakeFile) -> bytes | None:
    if file.size_bytes > _WHOLE_BYTES:
        return None
    try:
        if not _is_object(file):
            return Path(file.url).read_bytes()
        from fallow.stores.objects import read as read_object  # a lake in a folder never pays for it

        return read_object(file.url)
    except OSError:
        return None


def check(file: LakeFile, content: bytes, facts: Mapping[str, str]) -> None:
    """Raises what `open_file` raises, by a file's key-value metadata, and BrokenFileError where its checksum is another.

    Files of other writers and of an older fallow have no checksum.
    """
    try:
        _check_version(file, int(facts.get(_VERSION_KEY, "1")))
        stated = int(facts[_CHECKSUM_KEY]) if _CHECKSUM_KEY in facts else None
    except ValueError as error:
        raise _broken(file, error) from error
    footer_bytes = _TAIL_BYTES + int.from_bytes(content[-_TAIL_BYTES : -len(_MAGIC)], "little")
    if stated is not None and stated != zlib.crc32(memoryview(content)[:-footer_bytes]):
        raise _broken(file, ValueError("its content does not match its checksum"))


def _each(files: Iterable[LakeFile], read_one: Callable[[LakeFile], _Read]) -> list[_Read]:
    """What each file gives, in order; several requests at a time to an object store, whose answers take long to begin."""
    wanted = list(files)
    if not any(_is_object(file) for file in wanted):
        return [read_one(file) for file in wanted]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(read_one, wanted))


def _read_one(file: LakeFile, table: Table, schema: pa.Schema) -> pa.Table:
    opened = open_file(file)
    there = set(opened.schema_arrow.names) & set(table.names)
    _check_keys(file, table, there, schema)
    try:
        data = opened.read(columns=[name for name in schema.names if name in there])
        return pa.table([_filled(field, data, file, table) for field in schema], schema=schema)
    except _UNREADABLE as error:
        raise _broken(file, error) from error


def _check_keys(file: LakeFile, table: Table, there: Collection[str], schema: pa.Schema) -> None:
    if absent := [name for name in table.keys if name not in there and name in schema.names]:
        raise _broken(file, ValueError(f"it lacks the column {', '.join(absent)}"))


def _filled(field: pa.Field, data: pa.Table, file: LakeFile, table: Table) -> pa.Array | pa.ChunkedArray:
    if field.name in data.column_names:
        return _typed(data.column(field.name), field.type)
    if field.name not in table.names:  # the host of the file's path
        return pa.repeat(pa.scalar(file.host, pa.string()), data.num_rows)
    return pa.nulls(data.num_rows, field.type)


def _typed(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == kind else values.cast(kind)


def open_file(file: LakeFile) -> pq.ParquetFile:
    """The file, checked to be whole and of a schema version that this fallow knows."""
    version = 0
    try:
        opened = pq.ParquetFile(_source(file))
        version = int((opened.schema_arrow.metadata or {}).get(_VERSION_KEY.encode(), b"1"))
    except FileNotFoundError as error:
        raise VanishedFileError(f"{file.url} vanished while it was read", "run the command again") from error
    except _UNREADABLE as error:
        raise _broken(file, error) from error
    _check_version(file, version)
    return opened


def _check_version(file: LakeFile, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{file.url} was written with schema version {version} and this fallow knows {SCHEMA_VERSION}",
            "upgrade fallow here, or read the lake where the newer version runs",
        )


def _is_object(file: LakeFile) -> bool:
    return "://" in file.url


def _source(file: LakeFile) -> str | io.BytesIO | ObjectFile:
    """What pyarrow opens: a path, or the content of an object, which is fetched through the store."""
    if not _is_object(file):
        return file.url
    from fallow.stores.objects import open_object  # a lake in a folder never pays for it

    return open_object(file.url, file.size_bytes)


def metadata(file: LakeFile) -> dict[str, str]:
    """The file's key-value metadata; raises as `open_file` does."""
    found = open_file(file).schema_arrow.metadata or {}
    return {key.decode(): value.decode() for key, value in found.items() if not key.startswith(b"ARROW")}


def _broken(file: LakeFile, error: Exception) -> BrokenFileError:
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return BrokenFileError(
        f"{file.url} is not a whole Parquet file ({reason})",
        "move it out of the lake (the agent's spool or the importer writes it again if it still has the rows)",
    )
