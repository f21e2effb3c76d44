"""How large a file of the lake can be: what a footer states is compared with it before anything is decoded.

A host's day of 56 MIG instances at an interval of 1 s has 4.8 million rows. A derived table's file has those of all hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MOST_BYTES = 2 << 30
MOST_FOOTER_BYTES = 16 << 20
MOST_ROWS = 5_000_000
MOST_COLUMNS = 1_000
MOST_DECODED_BYTES = 2 << 30
"""Of all columns, as the footer states it."""

_ALL_HOSTS_FACTOR = 8
"""So many times as many rows and bytes has a file over all hosts."""


def excess_of(facts: pq.FileMetaData, *, all_hosts: bool) -> str:
    """What a footer states that is beyond the limits, such as `200000000 rows, at most 5000000`; empty where nothing is."""
    factor = _ALL_HOSTS_FACTOR if all_hosts else 1
    decoded = sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
    stated = (
        (facts.num_rows, MOST_ROWS * factor, "rows"),
        (facts.num_columns, MOST_COLUMNS, "columns"),
        (decoded, MOST_DECODED_BYTES * factor, "bytes when decoded"),
    )
    return next((f"{number} {what}, at most {most}" for number, most, what in stated if not 0 <= number <= most), "")
