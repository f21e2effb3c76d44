"""The publisher: a short-lived process that turns spooled rows into Parquet files in the lake.

Short-lived because pyarrow costs 60 MiB that the resident processes must not carry. A stretch of rows lands under names
made of its sequence numbers and leaves the spool only after the lake has every file, so that publishing it twice, or
dying anywhere in between, neither loses nor doubles a row.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING

from agent.spool import Spool, SpooledRow
from fallow import parquet
from fallow.clock import utc_day
from fallow.errors import FallowError
from fallow.lake import Lake, LakeFile
from fallow.schema import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


BATCH_ROWS = 20_000
"""About seven hours of eight GPUs: bounds the publisher's memory when a store was away for long."""


def publish(spool: Spool, lake: Lake, host: str) -> int:
    """Publishes every row that is in the spool and returns how many; raises LakeError and SpoolError."""
    count = 0
    while (last := spool.last_seq(BATCH_ROWS)) is not None:
        groups = _grouped(spool.rows_until(last))
        for (name, date), rows in sorted(groups.items()):
            file = LakeFile(name, date, host, rows[0].seq, rows[-1].seq)
            lake.put(file, parquet.encode(table(name), _arrow(name, rows), {"host": host}))
            _remove_hidden(lake, file)
        spool.forget_until(last)
        count += sum(len(rows) for rows in groups.values())
    return count


def _arrow(name: str, rows: list[SpooledRow]) -> pa.Table:
    """The rows in the table's schema; says aloud where a value did not fit its column and had to become null."""
    data = parquet.table_from_rows(table(name), [row.body for row in rows])
    for column in data.column_names:
        lost = data.column(column).null_count - sum(row.body.get(column) is None for row in rows)
        if lost:
            print(f"{lost} values of {name}.{column} do not fit the column and are null", file=sys.stderr)
    return data


def _grouped(rows: Iterable[SpooledRow]) -> dict[tuple[str, str], list[SpooledRow]]:
    groups: dict[tuple[str, str], list[SpooledRow]] = defaultdict(list)
    for row in rows:
        groups[row.table, utc_day(row.time_ms)].append(row)
    return groups


def _remove_hidden(lake: Lake, file: LakeFile) -> None:
    """After a crash an earlier try may have left a narrower file: readers do not see it, and now it goes."""
    for other in lake.all_files(file.table, hosts=[file.host], dates=[file.date]):
        if file.covers(other) and other.key != file.key:
            lake.delete(other)


def main() -> int:
    """`python -m agent.publisher SPOOL LAKE HOST`; prints one line, returns an exit code."""
    folder, location, host = sys.argv[1:]
    try:
        spool = Spool(folder)
        try:
            count = publish(spool, Lake.at(location), host)
        finally:
            spool.close()
    except FallowError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # whatever it is, the agent logs it as one line and tries again
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
        return 1
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
