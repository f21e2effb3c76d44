"""The one way to write Parquet: rows as an Arrow table of arro3, and Arrow tables as files.

The agent can carry arro3's code and memory in its own process. Imports no pyarrow: what this writes, `fallow.parquet` reads.
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
"""CRC-32 of all before the footer, in ten digits: Parquet's own checksums, one a page, are read by few libraries."""

MOST_ROWS = 5_000_000
"""Of a file of one host: readers refuse a larger one."""

_SMALLER_PAGE_ROWS = 16_000
"""Of 20,000: what is held of a page grows by powers of two."""

ROW_GROUP_ROWS = 138_240
"""16 GPU-days of 10 s rows: large enough that pages compress, small enough to skip by GPU (docs/storage.md)."""

LIST_ITEM = "element"
"""What Parquet's specification calls a list's values."""

_LISTS = (Type.INT_LIST, Type.DOUBLE_LIST, Type.STRING_LIST)
_UNKNOWN_SUM = "0" * 10

MAGIC = b"PAR1"
TAIL_BYTES = 4 + len(MAGIC)
"""What ends a file: the length of the footer before it, and the magic bytes."""


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
_UNFIT = (TypeError, ValueError, OverflowError)  # a text that is no UTF-8 is a ValueError


def arrow_rows(table: LakeTable, rows: Iterable[Mapping[str, object]]) -> tuple[ArrowTable, Counter[str]]:
    """The rows in the table's columns and types, sorted by its (gpu, time), and how many values per column had to become null.

    A key that a row lacks is null; LakeError for one that the table lacks. Timestamps are epoch milliseconds.
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
    """The Arrow schema of a table."""
    return Schema([Field(column.name, arrow_type(column), nullable=True) for column in table.columns])


def _order(columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """The rows' places by GPU and time, those without a GPU last; rows of one moment stay in their order."""
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
    """The values in the column's type; one that does not fit becomes null, so that it never keeps the others back."""
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
    """The values in the column's type; TypeError, ValueError or OverflowError for one that does not fit."""
    if column.type is Type.TIMESTAMP:
        return Array(values, type=_PLAIN[Type.INT64]).cast(_TIMESTAMP)
    if (item := _ITEMS.get(column.type)) is None:
        return Array(values, type=_PLAIN[column.type])
    if any(isinstance(value, str) for value in values):  # its characters would pass for a list
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
    """The rows as one Parquet file, with schema version and writer in its metadata; the same rows make the same bytes.

    They come in the table's columns and types, sorted by (gpu, time). zstd-3, dictionaries only where values repeat,
    deltas for what climbs (measurements: docs/storage.md). With `in_little_memory` a day
    of eight GPUs takes 6 MiB less to write, and is 4 % larger: each column has a compressor and a page of its own.
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
    """How many bytes the footer takes with what ends the file, as a whole file states it."""
    return TAIL_BYTES + int.from_bytes(content[-TAIL_BYTES : -len(MAGIC)], "little")


def is_whole(content: bytes) -> bool:
    """Whether these bytes begin and end as a Parquet file does."""
    return content.startswith(MAGIC) and content.endswith(MAGIC) and footer_bytes(content) < len(content)


def has_checksum(content: bytes, stated: str | None) -> bool:
    """Whether all before the footer has the checksum that the file states; a file of another writer states none."""
    return stated is None or stated == _checksum(memoryview(content)[: -footer_bytes(content)])


def _checksum(data: memoryview) -> str:
    return f"{zlib.crc32(data):010d}"


def check_version(file: str, stated: str | None) -> None:
    """SchemaVersionError for a schema version that this fallow does not read; a file of another program states none."""
    version = SCHEMA_VERSION if stated is None else int(stated)
    what = f"{file} was written with schema version {version} and this fallow knows {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        raise SchemaVersionError(what, "upgrade fallow here, or read the lake where the newer version runs")
    if version < OLDEST_SCHEMA_VERSION:
        raise SchemaVersionError(what, "make a new lake and import its history again")


def check_host(file: LakeFile, stated: str | None) -> None:
    """ForeignFileError where the file states another host than its folder's; what another program wrote states none."""
    if stated is not None and file.host and stated != file.host:
        raise ForeignFileError(
            f"{file.url or file.key} says that it is of the host {stated[:80]}, and lies in the folder of {file.host}",
            "find out who put it there, and move it out of the lake",
        )


def merged_facts(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What a file says that holds the rows of several, given what each says: what all say alike, and the origin of each."""
    same = {key: value for key, value in facts[0].items() if all(each.get(key) == value for each in facts)}
    own = (VERSION_KEY, CHECKSUM_KEY, WRITER_KEY, "ARROW:schema")
    return {key: value for key, value in same.items() if key not in own} | merged_origin(facts)


def _storage(table: LakeTable) -> dict[str, Any]:
    """Timestamps and counters climb within a GPU; the rest repeats itself and is best as a dictionary, save for lists."""
    delta = [
        column.name
        for column in table.columns
        if column.type is Type.TIMESTAMP or (column.name == "energy_mj" and column.type is Type.INT64)
    ]
    lists = [(column.name, "list", LIST_ITEM) for column in table.columns if column.type in _LISTS]
    return {
        "column_encoding": dict.fromkeys(delta, "delta_binary_packed"),
        "column_dictionary_enabled": dict.fromkeys([*delta, *lists], False),
    }


def _seal(content: memoryview, facts: Mapping[str, str]) -> None:
    """Puts the checksum of all before the footer into it, and the facts into their order: arro3 takes them in any."""
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
        raise LakeError(
            "the Parquet writer has not written the file's facts as it should", "install the arro3-io of the lock"
        )
    final = {**facts, CHECKSUM_KEY: _checksum(content[:-size])}
    start = len(content) - size
    content[start + first : start + at] = b"".join(_key_value(key, value) for key, value in final.items())


def _key_value(key: str, value: str) -> bytes:
    """How the footer has it: a struct of two strings in Thrift's compact protocol."""
    return b"\x18%b\x18%b\x00" % (_text(key), _text(value))


def _text(text: str) -> bytes:
    data = text.encode()
    length, size = b"", len(data)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return length + bytes([size]) + data
