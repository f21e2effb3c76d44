"""The publisher: a short-lived process that turns spooled rows into Parquet files in the lake.

Short-lived because pyarrow costs 60 MiB that the resident processes must not carry. A run of rows lands under names
made of its sequence numbers and counts as published only after the lake has confirmed every file, so that publishing it
twice, or dying anywhere in between, neither loses nor doubles a row. Published rows stay in the spool for a while; each
run looks whether the lake still has them, and publishes again what it lost.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.spool.publishing import EXIT_DAMAGED, EXIT_SPOOL, LONGEST_S
from agent.spool.spool import PublishedFile, Spool, SpooledRow
from agent.spool.spool_file import is_damaged
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, Clock, SystemClock, floor_ms, utc_day
from fallow.errors import FallowError, SpoolError
from fallow.lake import Lake, LakeFile
from fallow.schema import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from agent.rows import EventRow


BATCH_ROWS = 20_000
"""About seven hours of eight GPUs: bounds the publisher's memory when a store was away for long."""


@dataclass
class Publisher:
    """One run: from one spool into one lake, under one host's name."""

    spool: Spool
    lake: Lake
    host: str
    keep_ms: int = HOUR_MS
    clock: Clock = field(default_factory=SystemClock)
    misfits: Counter[str] = field(default_factory=Counter)
    """Values per column that did not fit and became null."""

    def publish(self) -> int:
        """Publishes every row that waits and returns how many; raises LakeError and SpoolError."""
        count = 0
        while (last := self.spool.last_seq(BATCH_ROWS)) is not None:
            self.spool.try_until(last)
            published = [
                self._put(name, day_ms, rows, last)
                for (name, day_ms), rows in sorted(_grouped(self.spool.rows_until(last)).items())
            ]
            self.spool.publish_until(last, published)
            count += sum(each.row_count for each in published)
        return count

    def _put(self, name: str, day_ms: int, rows: Sequence[SpooledRow], batch: int) -> PublishedFile:
        file = LakeFile(name, utc_day(day_ms), self.host, rows[0].seq, rows[-1].seq)
        self._store(file, rows)
        return PublishedFile(
            batch,
            name,
            day_ms,
            file.first_seq,
            file.last_seq,
            len(rows),
            self.lake.root,
            self.host,
            self.clock.now_ms(),
        )

    def _store(self, file: LakeFile, rows: Sequence[SpooledRow]) -> None:
        data = parquet.encode(table(file.table), self._arrow(file.table, rows), {"host": file.host})
        self.lake.put(file, data)
        self.lake.confirm(file, data)

    def _arrow(self, name: str, rows: Sequence[SpooledRow]) -> pa.Table:
        """The rows in the table's schema; counts the values that did not fit their column and had to become null."""
        data = parquet.table_from_rows(table(name), [row.body for row in rows])
        for column in data.column_names:
            lost = data.column(column).null_count - sum(row.body.get(column) is None for row in rows)
            if lost:
                self.misfits[f"{name}.{column}"] += lost
        return data

    def repair(self) -> int:
        """Publishes again, under the same names, what the lake has confirmed and then lost; returns how many files."""
        missing = [each for each in self._missing() if self._restore(each)]
        if missing:
            rows = sum(each.row_count for each in missing)
            event: EventRow = {
                "time": self.clock.now_ms(), "gpu": None, "kind": "lake_repaired",
                "detail": f"the lake had lost {len(missing)} files that it had confirmed; their {rows} rows are published again",
            }  # fmt: skip
            self.spool.append({"event": [event]})
        return len(missing)

    def _missing(self) -> Iterable[PublishedFile]:
        """Remembered files that the lake neither has nor covers by a wider one; one listing per table and date."""
        folders: dict[tuple[str, str, str], list[PublishedFile]] = defaultdict(list)
        for each in self.spool.published_files():
            if each.lake == self.lake.root:
                folders[each.table, each.date, each.host].append(each)
        for (name, date, host), published in folders.items():
            there = self.lake.files(name, hosts=[host], dates=[date])
            keys = {file.key for file in there}
            for each in published:
                file = _file(each)
                if file.key not in keys and not any(other.covers(file) for other in there):
                    yield each

    def _restore(self, each: PublishedFile) -> bool:
        rows = self.spool.rows_of(each)
        if len(rows) != each.row_count:  # they left the spool meanwhile, to make room
            return False
        self._store(_file(each), rows)
        return True

    def forget(self) -> None:
        """Lets go of published rows that have stayed long enough; call after `repair`, their last chance."""
        now_ms = self.clock.now_ms()
        published = self.spool.published_files()
        # one that was published "later" than now comes from a clock that has been put back since
        young = [each.batch for each in published if now_ms - self.keep_ms < each.published_ms <= now_ms + self.keep_ms]
        old = [each.batch for each in published if not young or each.batch < min(young)]
        if old:
            self.spool.forget_until(max(old))
            self.spool.compact()


def _file(published: PublishedFile) -> LakeFile:
    return LakeFile(published.table, published.date, published.host, published.first_seq, published.last_seq)


def _grouped(rows: Iterable[SpooledRow]) -> dict[tuple[str, int], list[SpooledRow]]:
    groups: dict[tuple[str, int], list[SpooledRow]] = defaultdict(list)
    for row in rows:
        groups[row.table, floor_ms(row.time_ms, DAY_MS)].append(row)
    return groups


def main() -> int:
    """`python -m agent.spool.publisher SPOOL LAKE HOST [KEEP_MS]`; prints one line, returns an exit code."""
    folder, location, host, *keep = sys.argv[1:]
    signal.alarm(LONGEST_S)
    try:
        spool = Spool(folder)
        try:
            publisher = Publisher(spool, Lake.at(location), host, int(keep[0]) if keep else HOUR_MS)
            count = publisher.publish()
            publisher.repair()
            publisher.forget()
        finally:
            spool.close()
    except SpoolError as error:
        print(error, file=sys.stderr)
        return EXIT_DAMAGED if is_damaged(error) else EXIT_SPOOL
    except FallowError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # whatever it is, the agent logs it as one line and tries again
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
        return 1
    for column, lost in publisher.misfits.items():
        print(f"{lost} values of {column} do not fit the column and are null", file=sys.stderr)
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
