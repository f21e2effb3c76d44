"""How large a file of the lake can be: what a footer states is compared with it before anything is decoded.

A host's day of 56 MIG instances at an interval of 1 s has 4.8 million rows and, if all that it measures is noise, 380 MB in
its columns and as much in texts. A derived table's file has those of all hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MOST_BYTES = 2 << 30
MOST_FOOTER_BYTES = 16 << 20
MOST_ROWS = 5_000_000
MOST_COLUMNS = 1_000
MOST_DECODED_BYTES = 512 << 20
"""Of all columns, as the footer states it; and of all texts, which a footer states once however often they repeat."""

MOST_LISTED = 100_000_000
"""Values in lists, which no footer states for sure: 100 a GPU-hour are those of a day of 41,000 GPUs."""

_ALL_HOSTS = 8
"""So many times as many rows and decoded bytes has a file over all hosts."""


def excess_of(facts: pq.FileMetaData, *, all_hosts: bool) -> str:
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


def contradiction_of(facts: pq.FileMetaData) -> str:
    """Where a footer states its rows twice and not the same, of which readers believe one or the other; empty where it does not."""
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    if facts.num_rows != sum(group.num_rows for group in groups):
        return "its row groups have another number of rows than the file"
    if any(group.num_columns != facts.num_columns for group in groups):
        return "a row group has another number of columns than the file"
    return ""


def excess_of_texts(data: pa.Table, *, all_hosts: bool) -> str:
    """The same of texts that were read as dictionaries: how long they are once each row has its own."""
    length = sum(
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices).cast(pa.int64())).as_py() or 0
        for column in data.columns
        for chunk in (pc.list_flatten(column) if pa.types.is_list(column.type) else column).chunks
        if pa.types.is_dictionary(chunk.type)
    )
    most = MOST_DECODED_BYTES * (_ALL_HOSTS if all_hosts else 1)
    return f"{length} bytes of text, at most {most}" if length > most else ""
