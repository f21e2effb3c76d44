"""Merges the files that agents left of days that are over: one file of each table, date and host.

Resumable, and safe twice and beside readers, agents and another compactor: a merged file's range covers exactly the files that it was
made of, its content is read back and compared, and those go only in a later run, after the grace. Compactors of one date take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from analytics.lake_care.partitions import (
    Leftovers,
    Partition,
    old_hidden,
    partitions,
    put_merged,
    remove_hidden,
    rows_of,
    turn,
)
from fallow.errors import SchemaVersionError, UnusableFileError, VanishedFileError
from fallow.lake import Lake, LakeFile
from fallow.parquet_files import MOST_ROWS

_MOST_BYTES = 128 << 20
"""Of files that are merged in memory; a day of 56 MIG instances at 1 s has half."""


@dataclass
class Compacted:
    """What a run did, or would do: `merged` are new files with the number of those that each replaces."""

    merged: list[tuple[str, int]] = field(default_factory=list)
    files_before: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    leftovers: Leftovers = field(default_factory=Leftovers)
    skipped: list[str] = field(default_factory=list)


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
                    self._count(each, done)
            else:
                self._compact_date(date, own, done)
            progress(number / len(by_date))
        return done

    def _is_due(self, each: Partition) -> bool:
        merges = len(each.visible) > 1 and not each.overlaps()
        return each.is_over(self.now_ms, self.older_than_ms) and (
            merges or bool(old_hidden(each, self.now_ms, self.grace_ms))
        )

    def _compact_date(self, date: str, due: Sequence[Partition], done: Compacted) -> None:
        names = {each.name for each in due}
        with turn(self.lake, date, "the compaction") as mine:
            # what another compactor did while this one waited is seen
            for each in partitions(mine, dates=[date]):
                if each.name in names and self._is_due(each):
                    remove_hidden(mine, each, self.now_ms, self.grace_ms, done.leftovers)
                    if len(each.visible) > 1 and not each.overlaps():
                        self._merge(mine, each, done)

    def _merge(self, lake: Lake, each: Partition, done: Compacted) -> None:
        files = each.visible
        if why := self._unfit(files):
            done.skipped.append(f"{each.name}: {why}")
            return
        try:
            rows = rows_of(files)
            if rows.height > MOST_ROWS:
                done.skipped.append(f"{each.name}: {rows.height} rows are more than one file may have")
                return
            written = put_merged(lake, _into(files), rows, files)
        except VanishedFileError:
            done.skipped.append(f"{each.name}: its files were replaced meanwhile")
        except (UnusableFileError, SchemaVersionError) as error:
            done.skipped.append(f"{each.name}: {error}")
        else:
            done.merged.append((written.key, len(files)))
            self._add(files, done)
            done.bytes_after += written.size_bytes

    def _unfit(self, files: Sequence[LakeFile]) -> str:
        total = sum(each.size_bytes for each in files)
        return f"{total} bytes are more than are merged at a time" if total > _MOST_BYTES else ""

    def _count(self, each: Partition, done: Compacted) -> None:
        done.leftovers.removed += [
            file for _, hidden in old_hidden(each, self.now_ms, self.grace_ms) for file in hidden
        ]
        if len(each.visible) > 1:
            done.merged.append((_into(each.visible).key, len(each.visible)))
            self._add(each.visible, done)

    @staticmethod
    def _add(files: Sequence[LakeFile], done: Compacted) -> None:
        done.files_before += len(files)
        done.bytes_before += sum(each.size_bytes for each in files)


def _into(files: Sequence[LakeFile]) -> LakeFile:
    first = files[0]
    return LakeFile(first.table, first.date, first.host, first.first_seq, max(each.last_seq for each in files))
