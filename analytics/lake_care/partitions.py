"""The files that compaction merges by table, date and host: what of them is over, at rest, hidden or overlapping.

Rows are compared as hashes, to tell whether one file holds all that others hold. Hidden files may go where every row is in the
file that hides them, once that one is older than the grace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl

from analytics.frames import arrow, milliseconds
from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, parse_day_ms
from fallow.errors import BrokenFileError, LakeError
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile, visible
from fallow.leases import leased
from fallow.parquet_writer import merged_facts

REST_MS = 3 * HOUR_MS
"""How long nothing of a partition may have changed before a service merges it: an agent's own merge is of files of one hour."""


@dataclass(frozen=True)
class Partition:
    """One table, date and host: all files of agents or requests in it, hidden ones too."""

    table: str
    date: str
    host: str
    files: tuple[LakeFile, ...]

    @property
    def visible(self) -> list[LakeFile]:
        return visible(self.files)

    @property
    def hidden(self) -> list[LakeFile]:
        seen = {each.key for each in self.visible}
        return [each for each in self.files if each.key not in seen]

    @property
    def name(self) -> str:
        return f"{self.table}/date={self.date}/host={self.host}"

    def is_over(self, now_ms: int, older_than_ms: int) -> bool:
        """Whether its day ended so long ago and nothing of it has changed for a while."""
        rests = all(each.modified_ms <= now_ms - min(REST_MS, older_than_ms) for each in self.files)
        return rests and parse_day_ms(self.date) + DAY_MS + older_than_ms <= now_ms

    def overlaps(self) -> list[list[LakeFile]]:
        """Groups of visible files whose ranges overlap and do not lie inside one another."""
        groups: list[list[LakeFile]] = []
        for before, after in pairwise(self.visible):
            if after.first_seq <= before.last_seq:
                if groups and groups[-1][-1] is before:
                    groups[-1].append(after)
                else:
                    groups.append([before, after])
        return groups


def partitions(
    lake: Lake, tables: Iterable[schema.LakeTable] = schema.COMPACTED, dates: Collection[str] | None = None
) -> list[Partition]:
    """Those of all dates or of some, by date, host and table. Raises LakeError."""
    found: dict[tuple[str, str, str], list[LakeFile]] = defaultdict(list)
    for table in tables:
        for file in lake.all_files(table.name, dates=dates):
            if file.host and file.first_seq >= AGENT_FIRST_SEQ:
                found[file.date, file.host, file.table].append(file)
    return [Partition(table, date, host, tuple(files)) for (date, host, table), files in sorted(found.items())]


@contextmanager
def turn(lake: Lake, date: str, what: str) -> Iterator[Lake]:
    """The lake as one service alone changes the files of a date; others wait. Raises LakeError."""
    with leased(lake, f"care-{date}", f"{what} of {date}") as mine:
        yield mine


def rows_of(files: Sequence[LakeFile]) -> pl.DataFrame:
    """The rows of files of one table, without the host. Raises UnusableFileError and its kinds, naming the file."""
    table = schema.table(files[0].table)
    return milliseconds(parquet.read(files, table)).select(table.names)


def counted(rows: pl.DataFrame) -> pl.DataFrame:
    """How often each row is there: `row` (a hash of all its columns) and `count`."""
    return pl.DataFrame({"row": _hashes(rows)}).group_by("row").agg(count=pl.len())


def _hashes(rows: pl.DataFrame) -> pl.Series:
    """Of each row one of all its columns; lists, which cannot be hashed, as their texts."""
    flat = rows.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join("+", ignore_nulls=False)
        for name, kind in rows.schema.items()
        if isinstance(kind, pl.List)
    )
    return flat.hash_rows(seed=7)


def lacks(holder: pl.DataFrame, other: pl.DataFrame) -> int:
    """How many rows of the other are not in the holder; both as `counted` gives them."""
    both = other.join(holder, on="row", how="left", suffix="_there")
    missing = pl.col("count").cast(pl.Int64) - pl.col("count_there").fill_null(0).cast(pl.Int64)
    return int(both.select(pl.max_horizontal(missing, 0).sum()).item() or 0)


def doubled(files: Sequence[LakeFile]) -> int:
    """How many rows, the same in every column, are in more than one of the files."""
    every = pl.concat([counted(rows_of([file])) for file in files])
    return int(every.group_by("row").agg(pl.col("count").sum() - pl.col("count").max())["count"].sum())


def keyed(file: LakeFile) -> pl.DataFrame:
    """The keys of a file's rows, each once. Raises as `rows_of` does."""
    return rows_of([file]).select(schema.table(file.table).keys).unique()


def union(files: Sequence[LakeFile]) -> pl.DataFrame:
    """The rows of files of which some are in several: each as often as it is in the file that has it most often."""
    parts = []
    for file in files:
        rows = rows_of([file])
        numbered = rows.with_columns(_hashes(rows).alias("row"))
        parts.append(numbered.with_columns(time_of_row=pl.int_range(pl.len()).over("row")))
    return pl.concat(parts).unique(["row", "time_of_row"], keep="first", maintain_order=True).drop("row", "time_of_row")


def put_merged(lake: Lake, into: LakeFile, rows: pl.DataFrame, sources: Sequence[LakeFile]) -> LakeFile:
    """Stores rows as one file with what its sources say of their origin, and reads it back. LakeError where it is not the same."""
    table = schema.table(into.table)
    data = parquet.encode(table, arrow(rows, table), merged_facts([parquet.metadata(each) for each in sources]))
    written = lake.put(into, data)
    lake.confirm(into, data)
    if not counted(rows_of([written])).sort("row").equals(counted(rows).sort("row")):
        raise BrokenFileError(
            f"{written.url} does not hold the rows that were merged into it", "run `fallow lake repair`"
        )
    return written


def content_of(file: LakeFile) -> pl.DataFrame | None:
    """Its rows as `counted` gives them; None where it cannot be read."""
    try:
        return counted(rows_of([file]))
    except LakeError:
        return None


@dataclass
class Leftovers:
    """What became of the hidden files: `kept` hold rows that the file over them lacks or cannot be read."""

    removed: list[LakeFile] = field(default_factory=list)
    kept: list[LakeFile] = field(default_factory=list)
    refused: str = ""


def old_hidden(partition: Partition, now_ms: int, grace_ms: int) -> list[tuple[LakeFile, list[LakeFile]]]:
    """Each file that has hidden others for longer than the grace, with those."""
    return [
        (file, list(file.hides))
        for file in partition.visible
        if file.hides and 0 < file.modified_ms <= now_ms - grace_ms
    ]


def remove_hidden(lake: Lake, partition: Partition, now_ms: int, grace_ms: int, found: Leftovers) -> None:
    """Removes what may go. Raises LakeError only where the turn is lost."""
    for file, hidden in old_hidden(partition, now_ms, grace_ms):
        holder = content_of(file)
        for each in hidden:
            content = None if holder is None else content_of(each)
            if holder is None or content is None or lacks(holder, content):
                found.kept.append(each)
                continue
            try:
                lake.delete(each)
            except LakeError as error:
                found.refused = found.refused or str(error)
                found.kept.append(each)
            else:
                found.removed.append(each)
