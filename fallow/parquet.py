"""Read and write Parquet with pyarrow: the Arrow schema of tables, writing and checked reading of files.

A reader opens only regular, complete files within the limits, with a known schema version. It compares the footer with
the limits before any decoding. A host's day of 56 MIG instances at an interval of 1 s has 4.8 million rows and, if all
measurements are noise, 380 MB in its columns and as much text. A file of a derived table has the rows of all hosts. The
metadata names a file's host (fallow/host_identity.py); files of imports and other programs name none and are accepted.

The resident agent processes never import this module, because it imports pyarrow.
"""

from __future__ import annotations

import errno
import io
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fallow import parquet_writer
from fallow.errors import (
    BrokenFileError,
    IrregularFileError,
    LakeError,
    OversizedFileError,
    UnreadableFileError,
    UnusableFileError,
    VanishedFileError,
)
from fallow.host_identity import HOST_KEY
from fallow.lake import visible
from fallow.os_user import effective_user
from fallow.parquet_writer import (
    CHECKSUM_KEY,
    LIST_ITEM,
    MAGIC,
    MOST_ROWS,
    TAIL_BYTES,
    VERSION_KEY,
    check_host,
    check_version,
    has_checksum,
)
from fallow.schema import LakeTable, Type
from fallow.stores.model import WHOLE_BYTES
from fallow.stores.regular_files import NotRegularError, open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import polars as pl

    from fallow.lake import LakeFile
    from fallow.quarantine import OnUnusable

_Read = TypeVar("_Read")

MOST_BYTES = 2 << 30
MOST_FOOTER_BYTES = 16 << 20
MOST_COLUMNS = 1_000
MOST_DECODED_BYTES = 512 << 20
"""Largest decoded size of all columns, by the footer, and of all text, which a footer counts once if it repeats."""

MOST_LISTED = 100_000_000
"""Most values in lists, whose number a footer does not state; 100 per GPU-hour allow a day of 41,000 GPUs."""

_ALL_HOSTS = 8
"""Factor of the limits for rows and decoded bytes of a file with all hosts."""


_HOST = pa.field("host", pa.string())

_LISTS_ROWS = 10_000
"""Rows per batch in tables with lists, which may be long."""

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
    """Return the Arrow schema of a table; all fields are nullable, because Arrow checks nullability only partly."""
    return pa.schema([pa.field(column.name, _ARROW[column.type]) for column in table.columns])


def table_from_rows(table: LakeTable, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Return the rows as an Arrow table like `parquet_writer.arrow_rows`: sorted, null for values that do not fit."""
    return pa.table(parquet_writer.arrow_rows(table, rows)[0]).cast(arrow_schema(table))


def encode(table: LakeTable, data: pa.Table | pl.DataFrame, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the rows as a Parquet file, sorted by (gpu, time), with schema version and writer in its metadata.

    Integers in a time column are milliseconds since the epoch.
    """
    rows = data if isinstance(data, pa.Table) else data.to_arrow()
    by = order_of(table)
    data = _cast(rows.select(list(table.names)), arrow_schema(table))
    # a page and a dictionary would start again with each chunk
    data = data.combine_chunks() if _is_sorted(data, by) else data.sort_by([(name, "ascending") for name in by])
    return parquet_writer.encode(table, _cast(data, _written_schema(table)), metadata)


def _cast(data: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return the rows with this schema. A cast copies every column, even those of the wanted type."""
    return data if data.schema.equals(wanted, check_metadata=True) else data.cast(wanted)


def order_of(table: LakeTable) -> list[str]:
    """Return the columns by which a file of the table is sorted."""
    return [name for name in ("gpu", "time") if name in table.names]


def _is_sorted(data: pa.Table, by: Sequence[str]) -> bool:
    """Return whether the rows are sorted by these columns, without nulls: sorting them would copy every column."""
    if data.num_rows < 2:
        return True
    import pyarrow.compute as pc  # a twentieth of a second, for writers

    rising: pa.ChunkedArray | None = None
    for name in reversed(by):
        before, after = data.column(name).slice(0, data.num_rows - 1), data.column(name).slice(1)
        if rising is None:
            rising = pc.less_equal(before, after)
        else:
            rising = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), rising))
    return rising is None or pc.all(rising, skip_nulls=False).as_py() is True


def _written_schema(table: LakeTable) -> pa.Schema:
    """Return the schema of the table, with Parquet's name for the values of lists."""
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
    """Return the rows of the files as an Arrow table with the named columns (all by default) and `host`, a string.

    `host` comes from the file's path, unless the table has such a column. Missing columns are null. `on_unusable` gets
    the files that cannot be used; the files that they hide are read instead.

    Raises UnusableFileError without `on_unusable`, SchemaVersionError, and VanishedFileError; each names the file.
    """
    names = list(table.names if columns is None else columns)
    schema = pa.schema([pa.field(name, _ARROW[table.column(name).type]) for name in names])
    if "host" not in table.names:
        schema = schema.append(_HOST)
    read_one = partial(_read_one, table=table, schema=schema)
    if on_unusable is None:
        parts = map_files(files, read_one)
    else:
        usable = partial(_usable, read_one=read_one, on_unusable=on_unusable)
        parts = [part for parts in map_files(files, usable) for part in parts]
    return pa.concat_tables(parts) if parts else pa.Table.from_batches([], schema)


def _usable(file: LakeFile, read_one: Callable[[LakeFile], pa.Table], on_unusable: OnUnusable) -> list[pa.Table]:
    """Return the result of a file, or of the files that it hides if it cannot be used."""
    try:
        return [read_one(file)]
    except UnusableFileError as error:
        on_unusable(file, error)
        return [part for hidden in visible(file.hides) for part in _usable(hidden, read_one, on_unusable)]


def _read_one(file: LakeFile, table: LakeTable, schema: pa.Schema) -> pa.Table:
    opened = open_file(file, whole=file.size_bytes <= WHOLE_BYTES)
    there = set(opened.schema_arrow.names) & set(table.names)
    if absent := [name for name in table.keys if name not in there and name in schema.names]:
        raise _broken(file, ValueError(f"it lacks the column {', '.join(absent)}"))
    try:
        data = _decoded(file, opened, [field for field in schema if field.name in there])
        data.validate(full=True)  # the bytes of text; a dictionary has each value once
        if excess := _excess_of_texts(data, all_hosts=not file.host):
            raise _oversized(file, excess)
        return pa.table([_filled(field, data, file, table) for field in schema], schema=schema)
    except _UNREADABLE as error:
        raise _unusable(file, error) from error


def _decoded(file: LakeFile, opened: pq.ParquetFile, fields: Sequence[pa.Field]) -> pa.Table:
    """Return the fields' columns, decoded in batches; checks rows and list values against the footer and the limits."""
    columns, kinds = [field.name for field in fields], opened.schema_arrow
    for field in fields:
        if pa.types.is_nested(kinds.field(field.name).type) and not pa.types.is_list(field.type):
            raise _broken(file, ValueError(f"its column {field.name} is a {kinds.field(field.name).type}"))
    rows, listed = opened.metadata.num_rows, 0
    batches = []
    at_once = _LISTS_ROWS if any(pa.types.is_list(field.type) for field in fields) else max(rows, 1)
    for batch in opened.iter_batches(at_once, columns=columns):
        batches.append(batch)
        listed += sum(len(each.flatten()) for each in batch.columns if pa.types.is_list(each.type))
        if listed > MOST_LISTED:
            raise _oversized(file, f"{listed} values in lists, at most {MOST_LISTED}")
    data = pa.Table.from_batches(batches, None if batches else pa.schema(kinds.field(name) for name in columns))
    if data.num_rows != rows:
        raise _broken(file, ValueError(f"it has {data.num_rows} rows, and its footer states {rows}"))
    return data


def _filled(field: pa.Field, data: pa.Table, file: LakeFile, table: LakeTable) -> pa.Array | pa.ChunkedArray:
    if field.name in data.column_names:
        values = data.column(field.name)
        return values if values.type == field.type else values.cast(field.type)
    if field.name not in table.names:  # the host in the file's path
        return _repeated(file.host, data.num_rows)
    return pa.nulls(data.num_rows, field.type)


def _repeated(text: str, count: int) -> pa.StringArray:
    """Return the text `count` times, without `pa.scalar` and `pa.array`, which import pandas where it is installed."""
    content = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(content))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(content * count))


_REQUESTS = 8
"""Files of an object store that are fetched concurrently; each has a few MB at most."""

_UNREADABLE = (pa.ArrowException, OSError, ValueError)
"""Exceptions of pyarrow for damaged files (random bytes may raise UnicodeDecodeError) and wrong column types."""


def small_contents(files: Iterable[LakeFile]) -> list[bytes | None]:
    """Return the bytes of each small file; None for a large file, and for a file that cannot be read.

    Raises LakeError if an object store does not answer.
    """
    return map_files(files, _content)


def _content(file: LakeFile) -> bytes | None:
    if file.size_bytes > WHOLE_BYTES:
        return None
    try:
        if not _is_object(file):
            return read_regular(file.url, _root_of(file), WHOLE_BYTES)
        from fallow.stores.objects import read as read_object  # loaded for object stores only

        return read_object(file.url)
    except OSError:
        return None


def map_files(files: Iterable[LakeFile], read_one: Callable[[LakeFile], _Read]) -> list[_Read]:
    """Return the results in the files' order; sends an object store, whose answers start late, concurrent requests."""
    wanted = list(files)
    if not any(_is_object(file) for file in wanted):
        return [read_one(file) for file in wanted]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(read_one, wanted))


def open_file(file: LakeFile, *, whole: bool = False) -> pq.ParquetFile:
    """Return the open file, which is regular, within the limits, and has a known schema version.

    With `whole`, the file is read completely and compared with its checksum, if it has one. Text and other values
    without a fixed width are read as dictionaries, which store a repeated value once. Raises UnusableFileError,
    SchemaVersionError and VanishedFileError.
    """
    if file.size_bytes > MOST_BYTES:
        raise _oversized(file, f"{file.size_bytes} bytes, at most {MOST_BYTES}")
    try:
        source = _source(file)
        if isinstance(source, io.FileIO):  # another file may have got the name after the listing
            whole = whole and os.fstat(source.fileno()).st_size <= WHOLE_BYTES
        if whole:
            content = source.read()
            facts, readable = check(file, content), pa.BufferReader(content)
        else:
            facts, readable = _checked(file, source, _tail(source)), source
        columns = [facts.schema.column(number) for number in range(facts.num_columns)]
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        opened = pq.ParquetFile(readable, metadata=facts, read_dictionary=texts)
        names = opened.schema_arrow.names
    except _UNREADABLE as error:
        raise _unusable(file, error) from error
    if len({*names}) < len(names):
        raise _broken(file, ValueError("two columns have one name"))
    return opened


def check(file: LakeFile, content: bytes) -> pq.FileMetaData:
    """Return the footer of a file in memory; raises like `open_file`, but allows two columns with the same name."""
    facts = _checked(file, pa.BufferReader(content), content[-TAIL_BYTES:])
    stated = (facts.metadata or {}).get(CHECKSUM_KEY.encode())
    if not has_checksum(content, None if stated is None else stated.decode(errors="replace")):
        raise _broken(file, ValueError("its content does not match its checksum"))
    return facts


def _checked(file: LakeFile, readable: BinaryIO | pa.BufferReader, tail: bytes) -> pq.FileMetaData:
    """Return the footer, after checks of its limits and its consistency."""
    footer_bytes = int.from_bytes(tail[:4], "little")
    if tail.endswith(MAGIC) and MOST_FOOTER_BYTES < footer_bytes < file.size_bytes:
        raise _oversized(file, f"{footer_bytes} bytes of footer, at most {MOST_FOOTER_BYTES}")
    try:
        facts = pq.ParquetFile(readable).metadata
        stated = {key.decode(): value.decode(errors="replace") for key, value in (facts.metadata or {}).items()}
        check_host(file, stated.get(HOST_KEY))
        check_version(file.url, stated.get(VERSION_KEY))
        if contradiction := _contradiction_of(facts):
            raise _broken(file, ValueError(contradiction))
        if excess := _excess_of(facts, all_hosts=not file.host):
            raise _oversized(file, excess)
    except _UNREADABLE as error:
        raise _unusable(file, error) from error
    return facts


def _tail(source: BinaryIO) -> bytes:
    """Return the last bytes of a file; empty for a large object, whose parts cost a request each."""
    if not isinstance(source, io.BytesIO | io.FileIO) or source.seek(0, io.SEEK_END) < TAIL_BYTES:
        return b""
    source.seek(-TAIL_BYTES, io.SEEK_END)
    tail = source.read(TAIL_BYTES)
    source.seek(0)
    return tail


def _is_object(file: LakeFile) -> bool:
    return "://" in file.url


def _root_of(file: LakeFile) -> str:
    """Return the root of the lake that contains a file in a folder."""
    return file.url.rsplit("/", 4 if file.host else 3)[0]


def _source(file: LakeFile) -> BinaryIO:
    """Return the source for pyarrow: an open file, or an object that the store fetches."""
    if not _is_object(file):
        return open_regular(file.url, _root_of(file))
    from fallow.stores.objects import open_object  # loaded for object stores only

    return cast("BinaryIO", open_object(file.url, file.size_bytes))


def metadata(file: LakeFile) -> dict[str, str]:
    """Return the key-value metadata of a file; raises like `open_file`."""
    found = open_file(file).schema_arrow.metadata or {}
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in found.items()
        if not key.startswith(b"ARROW")
    }


_OUT_OF_MEANS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of missing resources of the process, not of the file."""


def _unusable(file: LakeFile, error: Exception) -> LakeError:
    """Return the error for a file that could not be opened or decoded; errors without a number are pyarrow's."""
    if isinstance(error, NotRegularError):
        return IrregularFileError(f"{file.url} is not a regular file: {error}", "move it out of the lake")
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, FileNotFoundError | NotADirectoryError) or number == errno.ESTALE:
        return VanishedFileError(f"{file.url} vanished while it was read", "run the command again")
    if isinstance(error, PermissionError):
        return UnreadableFileError(
            f"the user {effective_user()} may not read {file.url}",
            "give this user permission to read the file and its folders",
        )
    if number is None:
        return _broken(file, error)
    what = f"cannot read {file.url}: {os.strerror(number)}"
    if number in _OUT_OF_MEANS:
        return LakeError(what, "raise the limit of open files or the memory of this process")
    return UnreadableFileError(what, "check the disk or the mount of the file")


def _oversized(file: LakeFile, excess: str) -> OversizedFileError:
    return OversizedFileError(f"{file.url} is larger than any file of a lake: {excess}", "move it out of the lake")


def _broken(file: LakeFile, error: Exception) -> BrokenFileError:
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return BrokenFileError(
        f"{file.url} is not a whole Parquet file ({reason})",
        "move it out of the lake (the agent's spool or the importer writes it again if it still has the rows)",
    )


def _excess_of(facts: pq.FileMetaData, *, all_hosts: bool) -> str:
    """Return the first fact of a footer beyond the limits, such as `200000000 rows, at most 5000000`; empty for none.

    Never reads the columns of a row group: with a damaged footer pyarrow would end the process.
    """
    if not 0 <= facts.num_columns <= MOST_COLUMNS:
        return f"{facts.num_columns} columns, at most {MOST_COLUMNS}"
    lengths = (facts.schema.column(number).length for number in range(facts.num_columns))
    repeated = facts.num_rows * sum(
        length for length in lengths if length > 0
    )  # bytes; a dictionary has each value once
    times = _ALL_HOSTS if all_hosts else 1
    stated = (
        (facts.num_rows, MOST_ROWS * times, "rows"),
        (decoded_bytes(facts) + repeated, MOST_DECODED_BYTES * times, "bytes when decoded"),
    )
    return next((f"{number} {what}, at most {most}" for number, most, what in stated if not 0 <= number <= most), "")


def decoded_bytes(facts: pq.FileMetaData) -> int:
    """Return the unpacked bytes of all columns by the footer, which counts repeated text once."""
    return sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))


def _contradiction_of(facts: pq.FileMetaData) -> str:
    """Return how the row counts of a footer disagree, because readers use either count; empty if they agree."""
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    if facts.num_rows != sum(group.num_rows for group in groups):
        return "its row groups have another number of rows than the file"
    if any(group.num_columns != facts.num_columns for group in groups):
        return "a row group has another number of columns than the file"
    return ""


def _excess_of_texts(data: pa.Table, *, all_hosts: bool) -> str:
    """Return by how much text from dictionaries exceeds the limit if each row has a copy; empty within the limit."""
    import pyarrow.compute as pc

    length = sum(
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices).cast(pa.int64())).as_py() or 0
        for column in data.columns
        for chunk in (pc.list_flatten(column) if pa.types.is_list(column.type) else column).chunks
        if pa.types.is_dictionary(chunk.type)
    )
    most = MOST_DECODED_BYTES * (_ALL_HOSTS if all_hosts else 1)
    return f"{length} bytes of text, at most {most}" if length > most else ""
