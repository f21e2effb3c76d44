"""The one way to write Parquet: on arro3, whose code and memory the agent can carry in its own process.

Imports no pyarrow: what it writes, `fallow.parquet` reads.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Any, Protocol

from arro3.io import write_parquet

from fallow import __version__
from fallow.errors import LakeError, SchemaVersionError
from fallow.host_identity import merged_origin
from fallow.schema import OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, LakeTable, Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION_KEY = "fallow_schema_version"
WRITER_KEY = "fallow_writer"
CHECKSUM_KEY = "fallow_crc32"
"""CRC-32 of all before the footer, in ten digits: Parquet's own checksums, one a page, are read by few libraries."""

_SMALLER_PAGE_ROWS = 16_000
"""Of 20,000: what is held of a page grows by powers of two."""

ROW_GROUP_ROWS = 138_240
"""16 GPU-days of 10 s rows: large enough that pages compress, small enough to skip by GPU (docs/storage.md)."""

LIST_ITEM = "element"
"""What Parquet's specification calls a list's values."""

_LISTS = (Type.INT_LIST, Type.DOUBLE_LIST, Type.STRING_LIST)
_UNKNOWN_SUM = "0" * 10
_TAIL_BYTES = 8  # the length of the footer before it, and the magic bytes


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


def check_version(file: str, stated: str | None) -> None:
    """SchemaVersionError for a schema version that this fallow does not read; a file of another program states none."""
    version = SCHEMA_VERSION if stated is None else int(stated)
    what = f"{file} was written with schema version {version} and this fallow knows {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        raise SchemaVersionError(what, "upgrade fallow here, or read the lake where the newer version runs")
    if version < OLDEST_SCHEMA_VERSION:
        raise SchemaVersionError(what, "make a new lake and import its history again")


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
    footer_bytes = _TAIL_BYTES + int.from_bytes(content[-_TAIL_BYTES:-4], "little")
    footer = bytes(content[-footer_bytes:])
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
    final = {**facts, CHECKSUM_KEY: f"{zlib.crc32(content[:-footer_bytes]):010d}"}
    start = len(content) - footer_bytes
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
