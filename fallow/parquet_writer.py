"""Write Parquet: rows to an Arrow table of arro3, and Arrow tables to files.

The agent can afford arro3's code and memory in its process, and therefore this module does not import pyarrow.
`fallow.parquet` reads the files.
"""

from __future__ import annotations

import functools
import io
import zlib
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from arro3.core import Array, DataType, Field, Schema, list_array
from arro3.core import Table as ArrowTable
from arro3.io import write_parquet

from fallow import __version__
from fallow.errors import ForeignFileError, LakeError, SchemaVersionError
from fallow.host_identity import merged_origin
from fallow.schema import OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, LakeColumn, LakeTable, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fallow.lake import LakeFile

VERSION_KEY = "fallow_schema_version"
WRITER_KEY = "fallow_writer"
CHECKSUM_KEY = "fallow_crc32"
"""CRC-32 of all bytes before the footer, in ten digits; few libraries read Parquet's checksums of pages."""

MOST_ROWS = 5_000_000
"""Most rows in a file of a host; readers refuse larger files."""

_SMALLER_PAGE_ROWS = 16_000
"""Instead of 20,000, because the memory of a page grows by powers of two."""

ROW_GROUP_ROWS = 138_240
"""16 GPU-days of 10 s rows: large enough that pages compress, small enough to skip by GPU (docs/storage.md)."""

LIST_ITEM = "element"
"""Name of a list's values in Parquet's specification."""

_FLOATS = (Type.FLOAT, Type.DOUBLE)
_UNKNOWN_SUM = "0" * 10

MAGIC = b"PAR1"
TAIL_BYTES = 4 + len(MAGIC)
"""Size of the end of a file: the length of the footer, and the magic bytes."""


_PLAIN = {
    Type.INT16: DataType.int16(),
    Type.INT32: DataType.int32(),
    Type.INT64: DataType.int64(),
    Type.FLOAT: DataType.float32(),
    Type.DOUBLE: DataType.float64(),
    Type.BOOL: DataType.bool(),
    Type.STRING: DataType.string(),
}
_ITEMS = {Type.INT_LIST: DataType.int32(), Type.DOUBLE_LIST: DataType.float64(), Type.STRING_LIST: DataType.string()}
_TIMESTAMP = DataType.timestamp("ms", tz="UTC")
_WHOLE = (Type.TIMESTAMP, Type.INT16, Type.INT32, Type.INT64)
_UNFIT = (TypeError, ValueError, OverflowError)  # text that is not UTF-8 raises ValueError


def arrow_rows(table: LakeTable, rows: Iterable[Mapping[str, object]]) -> tuple[ArrowTable, Counter[str]]:
    """Return the rows in the table's columns and types, by (gpu, time), and the number of values set to null by column.

    A missing key is null. Raises LakeError for a key that is not a column. Timestamps are epoch milliseconds.
    """
    columns: dict[str, list[Any]] = {name: [] for name in table.names}
    for row in rows:
        if unknown := row.keys() - columns.keys():
            raise LakeError(f"the table '{table.name}' has no column {', '.join(sorted(unknown))}")
        for name, values in columns.items():
            values.append(row.get(name))
    order = _order(columns)
    misfits: Counter[str] = Counter()
    arrays = []
    for column in table.columns:
        values = columns.pop(column.name)
        arrays.append(_array([values[at] for at in order], column, misfits))
    return ArrowTable.from_arrays(arrays, schema=arrow_schema(table)), misfits


@functools.cache
def arrow_schema(table: LakeTable) -> Schema:
    return Schema([Field(column.name, arrow_type(column), nullable=True) for column in table.columns])


def _order(columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """Return the order of the rows by GPU and time, rows without a GPU last; the sort is stable."""
    times = columns["time"]
    if (gpus := columns.get("gpu")) is None:
        return sorted(range(len(times)), key=times.__getitem__)
    return sorted(range(len(times)), key=lambda at: (gpus[at] is None, gpus[at] or "", times[at]))


def arrow_type(column: LakeColumn) -> DataType:
    if column.type is Type.TIMESTAMP:
        return _TIMESTAMP
    if (item := _ITEMS.get(column.type)) is not None:
        return DataType.list(Field(LIST_ITEM, item, nullable=True))
    return _PLAIN[column.type]


def _array(values: Sequence[Any], column: LakeColumn, misfits: Counter[str]) -> Array:
    """Return the values in the column's type; a value that does not fit becomes null, to keep the other values."""
    try:
        return array_of(values, column)
    except _UNFIT:
        fitting = [_fitting(value, column) for value in values]
        if lost := fitting.count(None) - values.count(None):
            misfits[column.name] += lost
        return array_of(fitting, column)


def _fitting(value: Any, column: LakeColumn) -> Any:
    if column.type in _WHOLE and isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        array_of([value], column)
    except _UNFIT:
        return None
    return value


def array_of(values: Sequence[Any], column: LakeColumn) -> Array:
    """Return the values in the column's type; raises TypeError, ValueError or OverflowError if one does not fit."""
    if column.type is Type.TIMESTAMP:
        return Array(values, type=_PLAIN[Type.INT64]).cast(_TIMESTAMP)
    if (item := _ITEMS.get(column.type)) is None:
        return Array(values, type=_PLAIN[column.type])
    if any(isinstance(value, str) for value in values):  # otherwise its characters would become a list
        raise TypeError
    offsets = accumulate((0 if value is None else len(value) for value in values), initial=0)
    flat = [each for value in values if value is not None for each in value]
    return list_array(
        Array(list(offsets), type=_PLAIN[Type.INT32]),
        Array(flat, type=item),
        type=arrow_type(column),
        mask=Array([value is None for value in values], type=_PLAIN[Type.BOOL]),
    )


class ArrowRows(Protocol):
    """Rows of any Arrow library: arro3, pyarrow, Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...  # Arrow's name


def encode(
    table: LakeTable, rows: ArrowRows, metadata: Mapping[str, str] | None = None, *, in_little_memory: bool = False
) -> bytes:
    """Return the rows as a Parquet file with schema version and writer in its metadata; equal rows give equal bytes.

    The rows have the table's columns and types and are sorted by (gpu, time). Compression: zstd-3, dictionaries for
    repeated values, deltas for rising values (measurements: docs/storage.md). With `in_little_memory`, writing a day of
    eight GPUs takes 6 MiB less and the file is 4 % larger: each column has its own compressor and page.
    """
    facts = {VERSION_KEY: str(SCHEMA_VERSION), WRITER_KEY: f"fallow {__version__}"}
    facts |= {**(metadata or {}), CHECKSUM_KEY: _UNKNOWN_SUM}
    sink = io.BytesIO()
    write_parquet(
        rows,
        sink,
        compression="zstd(1)" if in_little_memory else "zstd(3)",
        data_page_row_count_limit=_SMALLER_PAGE_ROWS if in_little_memory else None,
        max_row_group_size=ROW_GROUP_ROWS,
        writer_version="parquet_1_0",
        skip_arrow_metadata=True,  # Arrow's copy of the schema says nothing that Parquet's own does not
        key_value_metadata=facts,
        **_storage(table),
    )
    with sink.getbuffer() as content:
        _seal(content, facts)
    return sink.getvalue()


def footer_bytes(content: bytes | memoryview) -> int:
    """Return the bytes of the footer and the end of a complete file."""
    return TAIL_BYTES + int.from_bytes(content[-TAIL_BYTES : -len(MAGIC)], "little")


def is_whole(content: bytes) -> bool:
    """Return whether the bytes begin and end like a Parquet file."""
    return content.startswith(MAGIC) and content.endswith(MAGIC) and footer_bytes(content) < len(content)


def has_checksum(content: bytes, stated: str | None) -> bool:
    """Return whether the bytes before the footer match the checksum; True for files without one, of other writers."""
    return stated is None or stated == _checksum(memoryview(content)[: -footer_bytes(content)])


def _checksum(data: memoryview) -> str:
    return f"{zlib.crc32(data):010d}"


def check_version(file: str, stated: str | None) -> None:
    """Raise SchemaVersionError for a version that this fallow does not read; other programs' files state none."""
    version = SCHEMA_VERSION if stated is None else int(stated)
    what = f"{file} was written with schema version {version} and this fallow knows {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        raise SchemaVersionError(what, "upgrade fallow on this host, or read the lake on a host with the newer version")
    if version < OLDEST_SCHEMA_VERSION:
        raise SchemaVersionError(what, "create a new lake and import the history again")


def check_host(file: LakeFile, stated: str | None) -> None:
    """Raise ForeignFileError if the file names another host than its folder; other programs' files name no host."""
    if stated is not None and file.host and stated != file.host:
        raise ForeignFileError(
            f"{file.url or file.key} names the host {stated[:80]} and is in the folder of {file.host}",
            "find out who wrote it, and move it out of the lake",
        )


def merged_facts(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the metadata of a merged file: the entries that are equal in all files, and the origins of all files."""
    same = {key: value for key, value in facts[0].items() if all(each.get(key) == value for each in facts)}
    own = (VERSION_KEY, CHECKSUM_KEY, WRITER_KEY, "ARROW:schema")
    return {key: value for key, value in same.items() if key not in own} | merged_origin(facts)


def _storage(table: LakeTable) -> dict[str, Any]:
    """Return the encoding of each column.

    Timestamps and counters, which rise within a GPU, are stored as deltas. Computed floats, which have no resolution
    and seldom repeat, have their bytes split by position. The rest gets dictionaries, except lists of text and floats.
    """
    delta = [column.name for column in table.columns if column.type is Type.TIMESTAMP or column.counter]
    split = [column.name for column in table.columns if column.type in _FLOATS and not column.resolution]
    lists = [
        (column.name, "list", LIST_ITEM)
        for column in table.columns
        if column.type in (Type.DOUBLE_LIST, Type.STRING_LIST)
    ]
    return {
        "column_encoding": dict.fromkeys(delta, "delta_binary_packed") | dict.fromkeys(split, "byte_stream_split"),
        "column_dictionary_enabled": dict.fromkeys([*delta, *split, *lists], False),
    }


def _seal(content: memoryview, facts: Mapping[str, str]) -> None:
    """Put checksum and metadata into the footer, in a fixed order; arro3 writes the metadata in any order."""
    size = footer_bytes(content)
    footer = bytes(content[-size:])
    written = {_key_value(key, value) for key, value in facts.items()}
    first = at = min(footer.rfind(each) for each in written)
    while written and first >= 0:
        found = next((each for each in written if footer.startswith(each, at)), None)
        if found is None:
            break
        written.remove(found)
        at += len(found)
    if written:
        raise LakeError("the Parquet writer wrote unexpected metadata", "install the locked version of arro3-io")
    final = {**facts, CHECKSUM_KEY: _checksum(content[:-size])}
    start = len(content) - size
    content[start + first : start + at] = b"".join(_key_value(key, value) for key, value in final.items())


def _key_value(key: str, value: str) -> bytes:
    """Return a key and a value as in the footer: a struct of two strings in Thrift's compact protocol."""
    return b"\x18%b\x18%b\x00" % (_text(key), _text(value))


def _text(text: str) -> bytes:
    data = text.encode()
    length, size = b"", len(data)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return length + bytes([size]) + data
