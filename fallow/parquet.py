"""Parquet in and out: the Arrow form of the schema, one way to write files and one way to read them.

A file is opened only where it is a regular one within the limits, of a version that this fallow knows, and whole. What a footer
states is compared with the limits before anything is decoded. A host's day of 56 MIG instances at an interval of
1 s has 4.8 million rows and, if all that it measures is noise, 380 MB in its columns and as much in texts. A derived table's
file has those of all hosts. Whether a file is of the host whose folder it lies in, its metadata says (fallow/host_identity.py);
one that says nothing is taken as it is: an import's, another program's.

Imports pyarrow: the resident agent processes never import this module.
"""

from __future__ import annotations

import errno
import io
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
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
"""Of all columns, as the footer states it; and of all texts, which a footer states once however often they repeat."""

MOST_LISTED = 100_000_000
"""Values in lists, which no footer states for sure: 100 a GPU-hour are those of a day of 41,000 GPUs."""

_ALL_HOSTS = 8
"""So many times as many rows and decoded bytes has a file over all hosts."""


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
        parts = map_files(files, read_one)
    else:
        usable = partial(_usable, read_one=read_one, on_unusable=on_unusable)
        parts = [part for parts in map_files(files, usable) for part in parts]
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
    if absent := [name for name in table.keys if name not in there and name in schema.names]:
        raise _broken(file, ValueError(f"it lacks the column {', '.join(absent)}"))
    try:
        data = _decoded(file, opened, [field for field in schema if field.name in there])
        data.validate(full=True)  # of texts the bytes, each once, for a dictionary has them
        if excess := _excess_of_texts(data, all_hosts=not file.host):
            raise _oversized(file, excess)
        return pa.table([_filled(field, data, file, table) for field in schema], schema=schema)
    except _UNREADABLE as error:
        raise _unusable(file, error) from error


def _decoded(file: LakeFile, opened: pq.ParquetFile, fields: Sequence[pa.Field]) -> pa.Table:
    """The columns of the fields, in batches: of these the footer's rows are read, of a whole file as many as each column claims."""
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
        raise _broken(file, ValueError(f"it has {data.num_rows} rows and says {rows}"))
    return data


def _filled(field: pa.Field, data: pa.Table, file: LakeFile, table: LakeTable) -> pa.Array | pa.ChunkedArray:
    if field.name in data.column_names:
        values = data.column(field.name)
        return values if values.type == field.type else values.cast(field.type)
    if field.name not in table.names:  # the host of the file's path
        return pa.repeat(pa.scalar(file.host, pa.string()), data.num_rows)
    return pa.nulls(data.num_rows, field.type)


_REQUESTS = 8
"""Files of an object store that are fetched at a time: each at most a few MB in memory before it is decoded."""

_UNREADABLE = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for damaged files (a footer of noise may be a UnicodeDecodeError) and foreign column types."""


def small_contents(files: Iterable[LakeFile]) -> list[bytes | None]:
    """The bytes of each file that is small enough to be held whole; None for one that is not, or cannot be read as it is.

    Raises LakeError where an object store does not answer.
    """
    return map_files(files, _content)


def _content(file: LakeFile) -> bytes | None:
    if file.size_bytes > WHOLE_BYTES:
        return None
    try:
        if not _is_object(file):
            return read_regular(file.url, _root_of(file), WHOLE_BYTES)
        from fallow.stores.objects import read as read_object  # a lake in a folder never pays for it

        return read_object(file.url)
    except OSError:
        return None


def map_files(files: Iterable[LakeFile], read_one: Callable[[LakeFile], _Read]) -> list[_Read]:
    """What each file gives, in order; several requests at a time to an object store, whose answers take long to begin."""
    wanted = list(files)
    if not any(_is_object(file) for file in wanted):
        return [read_one(file) for file in wanted]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(read_one, wanted))


def open_file(file: LakeFile, *, whole: bool = False) -> pq.ParquetFile:
    """The file, checked to be a regular one within the limits and of a schema version that this fallow knows.

    With `whole`, all of it is read, and compared with its checksum where it has one. Texts, and whatever else has no
    width of its own, are read as dictionaries, in which one that repeats is there once. Raises UnusableFileError,
    SchemaVersionError and VanishedFileError.
    """
    if file.size_bytes > MOST_BYTES:
        raise _oversized(file, f"{file.size_bytes} bytes, at most {MOST_BYTES}")
    try:
        source = _source(file)
        if isinstance(source, io.FileIO):  # another file may have taken the name since it was listed
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
    """The footer of a file that is held whole; raises what `open_file` raises, and nothing for two columns of one name."""
    facts = _checked(file, pa.BufferReader(content), content[-TAIL_BYTES:])
    stated = (facts.metadata or {}).get(CHECKSUM_KEY.encode())
    if not has_checksum(content, None if stated is None else stated.decode(errors="replace")):
        raise _broken(file, ValueError("its content does not match its checksum"))
    return facts


def _checked(file: LakeFile, readable: BinaryIO | pa.BufferReader, tail: bytes) -> pq.FileMetaData:
    """The footer, by which nothing is decoded before it is within the limits and does not contradict itself."""
    _check_footer_size(file, tail)
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
    """The last bytes of a file that is at hand; nothing of a large object, of which every piece is a request."""
    if not isinstance(source, io.BytesIO | io.FileIO) or source.seek(0, io.SEEK_END) < TAIL_BYTES:
        return b""
    source.seek(-TAIL_BYTES, io.SEEK_END)
    tail = source.read(TAIL_BYTES)
    source.seek(0)
    return tail


def _check_footer_size(file: LakeFile, tail: bytes) -> None:
    footer_bytes = int.from_bytes(tail[:4], "little")
    if tail.endswith(MAGIC) and MOST_FOOTER_BYTES < footer_bytes < file.size_bytes:
        raise _oversized(file, f"{footer_bytes} bytes of footer, at most {MOST_FOOTER_BYTES}")


def _is_object(file: LakeFile) -> bool:
    return "://" in file.url


def _root_of(file: LakeFile) -> str:
    """The root of the lake that a file in a folder lies in."""
    return file.url.rsplit("/", 4 if file.host else 3)[0]


def _source(file: LakeFile) -> BinaryIO:
    """What pyarrow reads from: an open file, or the content of an object, which is fetched through the store."""
    if not _is_object(file):
        return open_regular(file.url, _root_of(file))
    from fallow.stores.objects import open_object  # a lake in a folder never pays for it

    return cast("BinaryIO", open_object(file.url, file.size_bytes))


def metadata(file: LakeFile) -> dict[str, str]:
    """The file's key-value metadata; raises as `open_file` does."""
    found = open_file(file).schema_arrow.metadata or {}
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in found.items()
        if not key.startswith(b"ARROW")
    }


_OUT_OF_MEANS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What a process lacks: no fault of the file."""


def _unusable(file: LakeFile, error: Exception) -> LakeError:
    """The error for a file that could not be opened or decoded; those without a number are pyarrow's own."""
    if isinstance(error, NotRegularError):
        return IrregularFileError(f"{file.url} is no regular file: {error}", "move it out of the lake")
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, FileNotFoundError | NotADirectoryError) or number == errno.ESTALE:
        return VanishedFileError(f"{file.url} vanished while it was read", "run the command again")
    if isinstance(error, PermissionError):
        return UnreadableFileError(
            f"the user {effective_user()} may not read {file.url}",
            "give that user permission to read it and its folders",
        )
    if number is None:
        return _broken(file, error)
    what = f"cannot read {file.url}: {os.strerror(number)}"
    if number in _OUT_OF_MEANS:
        return LakeError(what, "let this process open more files, or have more memory")
    return UnreadableFileError(what, "check the disk or the mount that it is on")


def _oversized(file: LakeFile, excess: str) -> OversizedFileError:
    return OversizedFileError(f"{file.url} is larger than any file of a lake: {excess}", "move it out of the lake")


def _broken(file: LakeFile, error: Exception) -> BrokenFileError:
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return BrokenFileError(
        f"{file.url} is not a whole Parquet file ({reason})",
        "move it out of the lake (the agent's spool or the importer writes it again if it still has the rows)",
    )


def _excess_of(facts: pq.FileMetaData, *, all_hosts: bool) -> str:
    """What a footer states that is beyond the limits, such as `200000000 rows, at most 5000000`; empty where nothing is.

    A row group's columns are never asked for: in a damaged footer pyarrow ends the process for it.
    """
    if not 0 <= facts.num_columns <= MOST_COLUMNS:
        return f"{facts.num_columns} columns, at most {MOST_COLUMNS}"
    lengths = (facts.schema.column(number).length for number in range(facts.num_columns))
    repeated = facts.num_rows * sum(
        length for length in lengths if length > 0
    )  # bytes, of which a dictionary has each once
    times = _ALL_HOSTS if all_hosts else 1
    stated = (
        (facts.num_rows, MOST_ROWS * times, "rows"),
        (decoded_bytes(facts) + repeated, MOST_DECODED_BYTES * times, "bytes when decoded"),
    )
    return next((f"{number} {what}, at most {most}" for number, most, what in stated if not 0 <= number <= most), "")


def decoded_bytes(facts: pq.FileMetaData) -> int:
    """The bytes of all columns once unpacked, as the footer states them; texts that repeat are there once."""
    return sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))


def _contradiction_of(facts: pq.FileMetaData) -> str:
    """Where a footer states its rows twice and not the same, of which readers believe one or the other; empty where it does not."""
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    if facts.num_rows != sum(group.num_rows for group in groups):
        return "its row groups have another number of rows than the file"
    if any(group.num_columns != facts.num_columns for group in groups):
        return "a row group has another number of columns than the file"
    return ""


def _excess_of_texts(data: pa.Table, *, all_hosts: bool) -> str:
    """The same of texts that were read as dictionaries: how long they are once each row has its own."""
    length = sum(
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices).cast(pa.int64())).as_py() or 0
        for column in data.columns
        for chunk in (pc.list_flatten(column) if pa.types.is_list(column.type) else column).chunks
        if pa.types.is_dictionary(chunk.type)
    )
    most = MOST_DECODED_BYTES * (_ALL_HOSTS if all_hosts else 1)
    return f"{length} bytes of text, at most {most}" if length > most else ""
