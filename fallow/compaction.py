"""Merge the files of a past day into one file for each table, date and host.

A run can be resumed and repeated, and is safe beside readers, writers and another compactor. The range of a merged file
(`fallow.parquet_merging`) covers exactly the files that it replaces. A later run removes the replaced files, after the
grace, and only if the merged file has each of their rows. Rows are compared by hashes. During a day, agents merge their
own files (agent/spool/compaction.py).

Imports Polars: the agent's processes never import this module.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import polars as pl

from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, parse_day_ms
from fallow.errors import LakeError, SchemaVersionError, UnusableFileError
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile, visible
from fallow.leases import leased
from fallow.parquet_merging import covering, merged_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

REST_MS = 3 * HOUR_MS
"""Time without a change before a service merges a partition; an agent merges its own files of an hour."""

_MOST_BYTES = 128 << 20
"""Largest size of the files that are merged in memory; a day of 56 MIG instances at 1 s has half."""


@dataclass(frozen=True)
class Partition:
    """A table, date and host: all files of agents (and requests), or all files of imports, hidden files included."""

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
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.visible)

    @property
    def name(self) -> str:
        return f"{self.table}/date={self.date}/host={self.host}"

    def is_over(self, now_ms: int, older_than_ms: int) -> bool:
        """Return whether the day is over by the required time and its files are at rest."""
        rests = all(each.modified_ms <= now_ms - min(REST_MS, older_than_ms) for each in self.files)
        return rests and parse_day_ms(self.date) + DAY_MS + older_than_ms <= now_ms

    def overlaps(self) -> list[list[LakeFile]]:
        """Return the groups of visible files whose ranges overlap without one containing the other."""
        groups: list[list[LakeFile]] = []
        for before, after in pairwise(self.visible):
            if after.first_seq <= before.last_seq:
                if groups and groups[-1][-1] is before:
                    groups[-1].append(after)
                else:
                    groups.append([before, after])
        return groups

    def is_in_parts(self) -> bool:
        """Return whether the rows are in several files that can be merged."""
        return len(self.visible) > 1 and not self.overlaps()

    def replaced(self, now_ms: int, grace_ms: int) -> list[tuple[LakeFile, list[LakeFile]]]:
        """Return the files that have hidden other files for longer than the grace, with the hidden files."""
        return [
            (file, list(file.hides))
            for file in self.visible
            if file.hides and 0 < file.modified_ms <= now_ms - grace_ms
        ]


def partitions(
    lake: Lake,
    tables: Iterable[schema.LakeTable] = schema.COMPACTED,
    dates: Collection[str] | None = None,
    *,
    hosts: Collection[str] | None = None,
    of_imports: bool = False,
) -> list[Partition]:
    """Return the partitions of all or some dates and hosts, by date, host and table. Raises LakeError.

    A partition has only the files of agents, or with `of_imports` only those of imports.
    """
    found: dict[tuple[str, str, str], list[LakeFile]] = defaultdict(list)
    for table in tables:
        for file in lake.all_files(table.name, hosts=hosts, dates=dates):
            if file.host and (file.last_seq < AGENT_FIRST_SEQ if of_imports else file.first_seq >= AGENT_FIRST_SEQ):
                found[file.date, file.host, file.table].append(file)
    return [Partition(table, date, host, tuple(files)) for (date, host, table), files in sorted(found.items())]


@contextmanager
def turn(lake: Lake, date: str, what: str) -> Iterator[Lake]:
    """Yield the lake to the only service that may change a date's files; other services wait. Raises LakeError."""
    with leased(lake, f"care-{date}", f"{what} of {date}") as mine:
        yield mine


def rows_of(files: Sequence[LakeFile]) -> pl.DataFrame:
    """Return the rows of files of one table, without the host. Raises UnusableFileError, which names the file."""
    table = schema.table(files[0].table)
    return pl.DataFrame(pl.from_arrow(parquet.read(files, table).select(table.names)))


def row_hashes(rows: pl.DataFrame) -> pl.Series:
    """Return a hash of all columns for each row; lists are hashed as text."""
    flat = rows.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join("+", ignore_nulls=False)
        for name, kind in rows.schema.items()
        if isinstance(kind, pl.List)
    )
    return flat.hash_rows(seed=7)


def counted(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the number of equal rows: `row` (a hash of all columns) and `count`."""
    return pl.DataFrame({"row": row_hashes(rows)}).group_by("row").agg(count=pl.len())


def content_of(file: LakeFile) -> pl.DataFrame | None:
    """Return the rows of a file as `counted` does; None if the file cannot be read."""
    try:
        return counted(rows_of([file]))
    except LakeError:
        return None


def lacks(holder: pl.DataFrame, other: pl.DataFrame) -> int:
    """Return how many rows of `other` are missing in `holder`; both as `counted` returns them."""
    both = other.join(holder, on="row", how="left", suffix="_there")
    missing = pl.col("count").cast(pl.Int64) - pl.col("count_there").fill_null(0).cast(pl.Int64)
    return int(both.select(pl.max_horizontal(missing, 0).sum()).item() or 0)


@dataclass
class Compacted:
    """The changes that a run made, or would make."""

    merged: list[tuple[str, int]] = field(default_factory=list)
    """New files, each with the number of files that it replaces."""
    files_before: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    skipped: list[str] = field(default_factory=list)
    """Partitions that are not merged, with the reason."""
    removed: list[LakeFile] = field(default_factory=list)
    """Hidden files that were removed."""
    kept: list[LakeFile] = field(default_factory=list)
    """Hidden files with rows that the merged file lacks, and hidden files that cannot be read or removed."""
    refused: str = ""
    """The reason why the store refuses to remove files."""

    def add(self, into: LakeFile, files: Sequence[LakeFile]) -> None:
        self.merged.append((into.key, len(files)))
        self.files_before += len(files)
        self.bytes_before += sum(each.size_bytes for each in files)
        self.bytes_after += into.size_bytes


def remove_replaced(lake: Lake, each: Partition, now_ms: int, grace_ms: int, done: Compacted) -> None:
    """Remove hidden files that are no longer needed. Raises LakeError only if the lease is lost."""
    for file, hidden in each.replaced(now_ms, grace_ms):
        holder = content_of(file)
        for old in hidden:
            content = None if holder is None else content_of(old)
            if holder is None or content is None or lacks(holder, content):
                done.kept.append(old)
                continue
            try:
                lake.delete(old)
            except LakeError as error:
                done.refused = done.refused or str(error)
                done.kept.append(old)
            else:
                done.removed.append(old)


def compact(lake: Lake, each: Partition, now_ms: int, grace_ms: int, done: Compacted) -> None:
    """Remove the replaced files and merge the others; the caller holds the lease. Raises LakeError."""
    remove_replaced(lake, each, now_ms, grace_ms, done)
    if not each.is_in_parts():
        return
    files = each.visible
    if each.size_bytes > _MOST_BYTES:
        done.skipped.append(f"{each.name}: {each.size_bytes} bytes are too many to merge")
        return
    try:
        content = merged_files(lake, files)
    except FileNotFoundError:
        done.skipped.append(f"{each.name}: its files were replaced meanwhile")
    except (UnusableFileError, SchemaVersionError) as error:
        done.skipped.append(f"{each.name}: {error}")
    else:
        done.add(lake.put_confirmed(covering(files), content), files)


@dataclass(frozen=True)
class LakeCompactor:
    """Merges the days of a lake that ended `older_than_ms` ago; removes files that were replaced `grace_ms` ago."""

    lake: Lake
    now_ms: int
    older_than_ms: int
    grace_ms: int
    dry_run: bool = False

    def run(self, progress: Callable[[float], None] = lambda _: None) -> Compacted:
        """Merge and remove; return the changes. Raises LakeError; earlier changes remain."""
        done = Compacted()
        due = [each for each in partitions(self.lake) if self._is_due(each)]
        by_date = [(date, list(own)) for date, own in groupby(due, lambda each: each.date)]
        for number, (date, own) in enumerate(by_date, 1):
            if self.dry_run:
                for each in own:
                    done.removed += [old for _, hidden in each.replaced(self.now_ms, self.grace_ms) for old in hidden]
                    if each.is_in_parts() and each.size_bytes <= _MOST_BYTES:
                        done.add(covering(each.visible), each.visible)
            else:
                self._compact_date(date, {each.name for each in own}, done)
            progress(number / len(by_date))
        return done

    def _is_due(self, each: Partition) -> bool:
        is_over = each.is_over(self.now_ms, self.older_than_ms)
        return is_over and (each.is_in_parts() or bool(each.replaced(self.now_ms, self.grace_ms)))

    def _compact_date(self, date: str, names: Collection[str], done: Compacted) -> None:
        with turn(self.lake, date, "the compaction") as mine:
            # list again: another compactor may have worked while this one waited
            for each in partitions(mine, dates=[date]):
                if each.name in names and self._is_due(each):
                    compact(mine, each, self.now_ms, self.grace_ms, done)
