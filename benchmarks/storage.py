"""`python -m benchmarks.storage [LAKE [DATE]]`: bytes, bytes a value and encoding of every column on one day of a lake.

Without a lake it simulates a day of 64 GPUs at 10 s, with the counters and rates of agents, and builds its ledger.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks.measure import Figure
from fallow import schema
from fallow.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator

GPUS = 64
"""GPUs of the simulated day."""

_SHARED = ("PLAIN", "RLE")
"""Encodings of dictionaries, levels and booleans, which every column has."""


@dataclass
class ColumnSize:
    """The compressed bytes of a column, its values without nulls, and its encodings."""

    bytes: int = 0
    values: int = 0
    encodings: set[str] = field(default_factory=set)

    @property
    def per_value(self) -> float:
        """Return bytes a value; those of a column without values count as one value."""
        return self.bytes / max(1, self.values)

    @property
    def encoding(self) -> str:
        """Return the encoding of the values."""
        return "+".join(sorted(self.encodings - {*_SHARED})) or "PLAIN"


@dataclass
class TableSize:
    """The columns of a table's files, their rows, and the bytes of their footers."""

    rows: int = 0
    footer_bytes: int = 0
    columns: dict[str, ColumnSize] = field(default_factory=lambda: defaultdict(ColumnSize))

    @property
    def bytes(self) -> int:
        """Return the bytes of all columns."""
        return sum(each.bytes for each in self.columns.values())

    @property
    def values(self) -> int:
        """Return the values of all columns that are not null."""
        return sum(each.values for each in self.columns.values())


def sizes(lake: Lake, date: str) -> dict[str, TableSize]:
    """Return the sizes of each table that has files on a date, from their footers."""
    found: dict[str, TableSize] = defaultdict(TableSize)
    for table in schema.TABLES:
        for file in lake.files(table.name, dates=[date]):
            facts, own = pq.read_metadata(file.url), found[table.name]
            own.rows += facts.num_rows
            own.footer_bytes += facts.serialized_size
            for number in range(facts.num_row_groups):
                for place in range(facts.num_columns):
                    chunk = facts.row_group(number).column(place)
                    column = own.columns[chunk.path_in_schema.removesuffix(".list.element")]
                    column.bytes += chunk.total_compressed_size
                    column.values += chunk.num_values - (chunk.statistics.null_count if chunk.statistics else 0)
                    column.encodings |= {*chunk.encodings}
    return dict(found)


@contextmanager
def simulated_day() -> Iterator[tuple[Lake, str]]:
    """Yield a lake with the day of 64 GPUs at 10 s and its ledger, and the date."""
    from analytics.ledger.build import load_ledger
    from analytics.ledger.settings import LedgerSettings
    from benchmarks.fleet_lake import as_agents_write, fleet_of

    with as_agents_write(fleet_of(GPUS, 1)) as lake:
        load_ledger(lake, LedgerSettings())
        yield lake, lake.files("gpu")[0].date


def measure() -> Iterator[Figure]:
    """Yield bytes a value of each table on the simulated day, and of all."""
    with simulated_day() as (lake, date):
        found = sizes(lake, date)
    sums: Counter[str] = Counter()
    for name, table in found.items():
        sums.update(bytes=table.bytes + table.footer_bytes, values=table.values)
        how = f"{table.bytes:,} bytes of {table.rows:,} rows, 64 GPUs x 1 day at 10 s"
        yield Figure(f"storage_{name}_per_value", table.bytes / max(1, table.values), "bytes", how)
        yield Figure(
            f"storage_{name}_gpu_day", (table.bytes + table.footer_bytes) / GPUS, "bytes", f"{how}, with footers"
        )
    yield Figure("storage_per_value", sums["bytes"] / sums["values"], "bytes", "all tables with footers, the same day")


def main(arguments: list[str]) -> int:
    """Print each column of a day, the largest first in each table."""
    if arguments:
        lake = Lake.at(arguments[0]).require()
        found = sizes(lake, arguments[1] if len(arguments) > 1 else lake.require_files("gpu")[0].date)
    else:
        with simulated_day() as (lake, date):
            found = sizes(lake, date)
    print(f"{'table':<20} {'column':<28} {'bytes':>10} {'values':>11} {'bytes/value':>11}  encoding")
    for name, table in sorted(found.items(), key=lambda each: -each[1].bytes):
        about = f"{table.rows:,} rows, {table.footer_bytes:,} bytes of footers"
        print(_line(name, f"({about})", table.bytes, table.values, ""))
        for column, size in sorted(table.columns.items(), key=lambda each: -each[1].bytes):
            print(_line(name, column, size.bytes, size.values, size.encoding))
    return 0


def _line(table: str, column: str, size_bytes: int, values: int, encoding: str) -> str:
    return f"{table:<20} {column:<28} {size_bytes:>10,} {values:>11,} {size_bytes / max(1, values):>11.3f}  {encoding}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
