"""Finds faults in the files of agents, beyond unusable files, and repairs them.

A row that exists only once is never deleted.

- Rows of overlapping ranges are merged into one file over all of them. A row occurs as often as in the file that has it
  most often.
- Rows of a hidden file that the file over it lacks are merged into that one, under the same name.
- Damaged files are moved to `.quarantine/` in the lake, under their own path.
- Hidden files whose every row is in the file over them are deleted after the grace period; half-written files too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import polars as pl

from fallow import parquet, schema
from fallow.compaction import (
    Compacted,
    Partition,
    content_of,
    counted,
    lacks,
    partitions,
    remove_replaced,
    row_hashes,
    rows_of,
    turn,
)
from fallow.errors import BrokenFileError, IrregularFileError, LakeError, OversizedFileError
from fallow.host_identity import INSTALL_KEY
from fallow.lake import Lake, LakeFile, visible
from fallow.parquet_merging import covering
from fallow.parquet_writer import merged_facts
from fallow.stores import Stored

FAULTS = {
    "overlap": "ranges of files overlap, and neither lies inside the other",
    "doubled": "rows are in two files that readers use",
    "two_writers": "two installations have written rows of the same moments",
    "not_covered": "a hidden file holds rows that the file over it lacks",
}
"""The kinds of fault, besides those of an unusable file (`fallow.quarantine.FAULTS`)."""


_OF_MOMENTS = (schema.GPU.name, schema.HOST.name, schema.AGENT.name)
"""The tables with one row of each thing for each interval."""


@dataclass(frozen=True)
class FileFault:
    """One fault of a partition: a kind of FAULTS, its files, and the sentence."""

    kind: str
    files: tuple[LakeFile, ...]
    sentence: str


@dataclass
class Inspected:
    """The faults of a lake's files, and files that are no fault."""

    problems: list[FileFault] = field(default_factory=list)
    hidden: list[LakeFile] = field(default_factory=list)
    """Files that compaction left for the grace period."""
    partials: list[Stored] = field(default_factory=list)
    """Files that killed writers left."""


def inspect(lake: Lake, found: Sequence[Partition], progress: Callable[[float], None] = lambda _: None) -> Inspected:
    """Return the faults of the partitions with more than one file. Raises LakeError where the lake cannot be listed."""
    seen = Inspected(partials=list(lake.store.partials()))
    several = [each for each in found if len(each.files) > 1]
    for number, each in enumerate(several, 1):
        seen.hidden += each.hidden
        seen.problems += faults(each)
        progress(number / len(several))
    return seen


def faults(each: Partition) -> list[FileFault]:
    return [*_overlaps(each), *_doubled_rows(each), *_two_writers(each), *_uncovered_rows(each)]


def _overlaps(each: Partition) -> list[FileFault]:
    return [
        FileFault("overlap", tuple(group), f"{each.name}: {_names(group)} overlap, and neither lies inside the other")
        for group in each.overlaps()
    ]


def _doubled_rows(each: Partition) -> list[FileFault]:
    files = each.visible
    try:
        contents = [counted(rows_of([file])) for file in files] if len(files) > 1 else []
    except LakeError:  # an unusable file has a fault of its own
        return []
    often = pl.concat(contents).group_by("row").agg(pl.col("count").sum() - pl.col("count").max()) if contents else None
    count = 0 if often is None else int(often["count"].sum())
    return [FileFault("doubled", tuple(files), f"{each.name}: {count} rows are in two files")] if count else []


def _two_writers(each: Partition) -> list[FileFault]:
    """Return a fault where two installations wrote the same moment.

    One installation may repeat a key after its clock was set back.
    """
    keys: dict[str, pl.DataFrame] = {}
    files: dict[str, list[LakeFile]] = {}
    try:
        for file in each.visible if len(each.visible) > 1 else ():
            if install := parquet.metadata(file).get(INSTALL_KEY):
                files.setdefault(install, []).append(file)
        if len(files) < 2 or each.table not in _OF_MOMENTS:
            return []
        for install, own in files.items():
            keys[install] = rows_of(own).select(schema.table(each.table).keys).unique()
    except LakeError:  # an unusable file has a fault of its own
        return []
    every = pl.concat(list(keys.values()))
    count = every.height - every.unique().height
    if not count:
        return []
    sentence = (
        f"{each.name}: {count} rows are of moments for which another installation has rows too; remove the files of one"
        " of them"
    )
    return [FileFault("two_writers", tuple(each.visible), sentence)]


def _uncovered_rows(each: Partition) -> list[FileFault]:
    problems = []
    for file in each.visible:
        user = content_of(file) if file.hides else None
        for hidden in visible(file.hides) if user is not None else ():
            content = content_of(hidden)
            if user is not None and content is not None and (count := lacks(user, content)):
                sentence = f"{hidden.url}: {count} of its rows are not in {_names([file])}, which hides it"
                problems.append(FileFault("not_covered", (file, hidden), sentence))
    return problems


def _names(files: Sequence[LakeFile]) -> str:
    return " and ".join(file.key.rpartition("/")[2] for file in files)


QUARANTINE = ".quarantine"
"""Folder of damaged files; no table has this name."""


@dataclass(frozen=True)
class RepairStep:
    """One done or planned step: `unite`, `quarantine`, `remove_hidden`, `remove_partial` or `wait`, and a sentence."""

    kind: str
    key: str
    sentence: str


@dataclass(frozen=True)
class Repairer:
    """Repairs one lake; with `dry_run` nothing is changed."""

    lake: Lake
    now_ms: int
    grace_ms: int
    dry_run: bool = True

    def run(self, progress: Callable[[float], None] = lambda _: None) -> list[RepairStep]:
        """Return the steps. Raises LakeError; completed steps stay, and the next run does the others."""
        steps = list(self._partials())
        by_date = [(date, list(own)) for date, own in groupby(partitions(self.lake), lambda each: each.date)]
        for number, (date, own) in enumerate(by_date, 1):
            steps += self._date(date, own)
            progress(number / len(by_date))
        return steps

    def _partials(self) -> Iterator[RepairStep]:
        for each in self.lake.store.partials():
            if each.modified_ms <= self.now_ms - self.grace_ms:
                if not self.dry_run:
                    self.lake.store.delete(each.key)
                yield RepairStep("remove_partial", each.key, f"{each.key} was never completely written")

    def _date(self, date: str, own: Sequence[Partition]) -> list[RepairStep]:
        planned = [step for each in own for step in self._steps(self.lake, each, dry_run=True)]
        if self.dry_run or not planned:
            return planned
        with turn(self.lake, date, "the repair") as mine:
            return [step for each in partitions(mine, dates=[date]) for step in self._steps(mine, each, dry_run=False)]

    def _steps(self, lake: Lake, each: Partition, *, dry_run: bool) -> list[RepairStep]:
        steps = []
        for file in (file for file in each.files if _is_damaged(file)):
            if not dry_run:
                _move_aside(lake, file)
            steps.append(RepairStep("quarantine", file.key, f"{file.key} is damaged and goes to {QUARANTINE}/"))
        aside = {step.key for step in steps}
        whole = Partition(each.table, each.date, each.host, tuple(file for file in each.files if file.key not in aside))
        if len(whole.files) < 2:  # nothing to compare
            return steps
        rests = all(file.modified_ms <= self.now_ms - self.grace_ms for file in whole.files)
        # fallow cannot decide which of two writers is right
        problems = [each for each in faults(whole) if each.kind != "two_writers"]
        if not rests:  # its agent may be working on it
            steps += [
                RepairStep("wait", each.files[0].key, f"{each.sentence}: waits until its files are old enough")
                for each in problems
            ]
            problems = []
        overlap = any(each.kind == "overlap" for each in problems)
        for problem in problems:
            if problem.kind != "doubled" or not overlap:  # overlapping ranges cause these doubled rows
                into = covering(problem.files)
                if not dry_run:
                    _put(lake, into, _union(problem.files), problem.files)
                steps.append(RepairStep("unite", into.key, f"{problem.sentence}: they become {into.key}"))
        return steps + self._removal_steps(lake, whole, dry_run=dry_run)

    def _removal_steps(self, lake: Lake, each: Partition, *, dry_run: bool) -> list[RepairStep]:
        if dry_run:
            going = [
                hidden
                for file, own in each.replaced(self.now_ms, self.grace_ms)
                if (user := content_of(file)) is not None
                for hidden in own
                if (content := content_of(hidden)) is not None and not lacks(user, content)
            ]
        else:
            found = Compacted()
            remove_replaced(lake, each, self.now_ms, self.grace_ms, found)
            going = found.removed
        return [RepairStep("remove_hidden", file.key, f"{file.key} is in a wider file") for file in going]


def _union(files: Sequence[LakeFile]) -> pl.DataFrame:
    """Return the rows of files that share some rows, each row as often as in the file that has it most often."""
    parts = []
    for file in files:
        rows = rows_of([file])
        numbered = rows.with_columns(row_hashes(rows).alias("row"))
        parts.append(numbered.with_columns(time_of_row=pl.int_range(pl.len()).over("row")))
    return pl.concat(parts).unique(["row", "time_of_row"], keep="first", maintain_order=True).drop("row", "time_of_row")


def _put(lake: Lake, into: LakeFile, rows: pl.DataFrame, sources: Sequence[LakeFile]) -> None:
    """Store rows as one file with the metadata of its sources, and read it back. Raises LakeError if they differ."""
    facts = merged_facts([parquet.metadata(each) for each in sources])
    written = lake.put_confirmed(into, parquet.encode(schema.table(into.table), rows, facts))
    if not counted(rows_of([written])).sort("row").equals(counted(rows).sort("row")):
        raise BrokenFileError(
            f"{written.url} does not hold the rows that were merged into it", "run `fallow lake repair`"
        )


def _is_damaged(file: LakeFile) -> bool:
    """Return whether the file can never be read, unlike a file with wrong permissions or on a failing disk."""
    try:
        parquet.read([file], schema.table(file.table))
    except BrokenFileError as error:
        return not isinstance(error, IrregularFileError | OversizedFileError)
    except LakeError:
        return False
    return False


def _move_aside(lake: Lake, file: LakeFile) -> None:
    content = lake.read(file)
    key = f"{QUARANTINE}/{file.key}"
    lake.store.put(key, content)
    lake.store.confirm(key, content)
    lake.delete(file)
