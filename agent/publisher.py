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


def publish(spool: Spool, lake: Lake, host: str) -> int:
    """Publishes every row that is in the spool now and returns how many; raises LakeError and SpoolError."""
    last = spool.last_seq()
    if last is None:
        return 0
    groups = _grouped(spool.rows_until(last))
    for (name, date), rows in sorted(groups.items()):
        described = table(name)
        data = parquet.table_from_rows(described, [row.body for row in rows])
        file = LakeFile(name, date, host, rows[0].seq, rows[-1].seq)
        lake.put(file, parquet.encode(described, data, {"host": host}))
        _remove_hidden(lake, file)
    spool.forget_until(last)
    return sum(len(rows) for rows in groups.values())


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
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
