"""Makes one file of the files that writers left of a day that is over: one of each table, date and host.

Resumable, and safe twice and beside readers, writers and another compactor: what is merged (`fallow.parquet_merging`) has a range that
covers exactly the files that it was made of, and those go only in a later run, after the grace, and only where every row of them is
in the file that hides them. Rows are compared as hashes. Agents merge their own files while a day is going on, by their notes
(agent/spool/compaction.py).

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
"""How long nothing of a partition may have changed before a service merges it: an agent's own merge is of files of one hour."""

_MOST_BYTES = 128 << 20
"""Of files that are merged in memory; a day of 56 MIG instances at 1 s has half."""


@dataclass(frozen=True)
class Partition:
    """One table, date and host: all files of agents (and requests) in it, or all of imports, hidden ones too."""

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

    def is_in_parts(self) -> bool:
        """Whether its rows lie in several files that can become one."""
        return len(self.visible) > 1 and not self.overlaps()

    def replaced(self, now_ms: int, grace_ms: int) -> list[tuple[LakeFile, list[LakeFile]]]:
        """Each file that has hidden others for longer than the grace, with those."""
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
    """Those of all dates and hosts or of some, by date, host and table; files of imports and of agents are never in one. LakeError."""
    found: dict[tuple[str, str, str], list[LakeFile]] = defaultdict(list)
    for table in tables:
        for file in lake.all_files(table.name, hosts=hosts, dates=dates):
            if file.host and (file.last_seq < AGENT_FIRST_SEQ if of_imports else file.first_seq >= AGENT_FIRST_SEQ):
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
    return pl.DataFrame(pl.from_arrow(parquet.read(files, table).select(table.names)))


def row_hashes(rows: pl.DataFrame) -> pl.Series:
    """Of each row one of all its columns; lists, which cannot be hashed, as their texts."""
    flat = rows.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join("+", ignore_nulls=False)
        for name, kind in rows.schema.items()
        if isinstance(kind, pl.List)
    )
    return flat.hash_rows(seed=7)


def counted(rows: pl.DataFrame) -> pl.DataFrame:
    """How often each row is there: `row` (a hash of all its columns) and `count`."""
    return pl.DataFrame({"row": row_hashes(rows)}).group_by("row").agg(count=pl.len())


def content_of(file: LakeFile) -> pl.DataFrame | None:
    """Its rows as `counted` gives them; None where it cannot be read."""
    try:
        return counted(rows_of([file]))
    except LakeError:
        return None


def lacks(holder: pl.DataFrame, other: pl.DataFrame) -> int:
    """How many rows of the other are not in the holder; both as `counted` gives them."""
    both = other.join(holder, on="row", how="left", suffix="_there")
    missing = pl.col("count").cast(pl.Int64) - pl.col("count_there").fill_null(0).cast(pl.Int64)
    return int(both.select(pl.max_horizontal(missing, 0).sum()).item() or 0)


@dataclass
class Compacted:
    """What a run did, or would do."""

    merged: list[tuple[str, int]] = field(default_factory=list)
    """New files with the number of those that each replaces."""
    files_before: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    skipped: list[str] = field(default_factory=list)
    """Partitions that stay as they are, and why."""
    removed: list[LakeFile] = field(default_factory=list)
    """Hidden files that are gone."""
    kept: list[LakeFile] = field(default_factory=list)
    """Hidden files that hold rows which the file over them lacks, or that cannot be read or removed."""
    refused: str = ""
    """Why the store removes nothing."""

    def add(self, into: LakeFile, files: Sequence[LakeFile]) -> None:
        self.merged.append((into.key, len(files)))
        self.files_before += len(files)
        self.bytes_before += sum(each.size_bytes for each in files)
        self.bytes_after += into.size_bytes


def remove_replaced(lake: Lake, each: Partition, now_ms: int, grace_ms: int, done: Compacted) -> None:
    """Removes hidden files that may go. Raises LakeError only where the turn is lost."""
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
    """Removes what was replaced and makes one file of the rest; call it where it is this writer's turn. Raises LakeError."""
    remove_replaced(lake, each, now_ms, grace_ms, done)
    if not each.is_in_parts():
        return
    files = each.visible
    if each.size_bytes > _MOST_BYTES:
        done.skipped.append(f"{each.name}: {each.size_bytes} bytes are more than are merged at a time")
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
    """Of one lake: days that ended `older_than_ms` ago, hidden files that were replaced `grace_ms` ago."""

    lake: Lake
    now_ms: int
    older_than_ms: int
    grace_ms: int
    dry_run: bool = False

    def run(self, progress: Callable[[float], None] = lambda _: None) -> Compacted:
        """Raises LakeError; what is done then stays done."""
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
            # what another compactor did while this one waited is seen
            for each in partitions(mine, dates=[date]):
                if each.name in names and self._is_due(each):
                    compact(mine, each, self.now_ms, self.grace_ms, done)
