"""Puts right what `fallow lake check` names, and removes what is left over. No row that is nowhere else is ever deleted.

- Rows of ranges that overlap are put into one file over all of them, each row as often as it is in the file that has it most often.
- Rows of a hidden file that the file over it lacks are put into that one, under the same name.
- Damaged files are moved to `.quarantine/` in the lake, under their own path.
- Hidden files whose every row is in the file over them are deleted after the grace; half-written files too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from analytics.lake_care.inspect import FileFault, faults
from analytics.lake_care.leftovers import Leftovers, old_hidden, remove_hidden
from analytics.lake_care.partitions import Partition, partitions, turn
from analytics.lake_care.rows import content_of, lacks, put_merged, union
from fallow import parquet, schema
from fallow.errors import BrokenFileError, IrregularFileError, LakeError, OversizedFileError, UnusableFileError
from fallow.lake import Lake, LakeFile

QUARANTINE = ".quarantine"
"""Where damaged files go: no table has this name."""


@dataclass(frozen=True)
class RepairStep:
    """One thing that was done, or would be: `unite`, `quarantine`, `remove_hidden`, `remove_partial` or `wait`, and the sentence."""

    kind: str
    key: str
    sentence: str


@dataclass(frozen=True)
class Repairer:
    """Of one lake; with `dry_run` nothing is changed."""

    lake: Lake
    now_ms: int
    grace_ms: int
    dry_run: bool = True

    def run(self, progress: Callable[[float], None] = lambda _: None) -> list[RepairStep]:
        """Raises LakeError; what is done then stays done, and the next run does the rest."""
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
                yield RepairStep("remove_partial", each.key, f"{each.key} was never written to its end")

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
        whole = Partition(each.table, each.date, each.host, tuple(_without(each.files, {step.key for step in steps})))
        if len(whole.files) < 2:  # nothing to compare
            return steps
        rests = all(file.modified_ms <= self.now_ms - self.grace_ms for file in whole.files)
        # which of two writers is right nobody here knows
        problems = [each for each in faults(whole) if each.kind != "two_writers"]
        if not rests:  # its agent may be at it
            steps += [
                RepairStep("wait", each.files[0].key, f"{each.sentence}: waits until its files have rested")
                for each in problems
            ]
            problems = []
        overlap = any(each.kind == "overlap" for each in problems)
        for problem in problems:
            if problem.kind != "doubled" or not overlap:  # rows of an overlap are doubled because of it
                steps += self._unite(lake, problem, dry_run=dry_run)
        return steps + self._hidden(lake, whole, dry_run=dry_run)

    def _unite(self, lake: Lake, problem: FileFault, *, dry_run: bool) -> list[RepairStep]:
        files = problem.files
        first, last = min(each.first_seq for each in files), max(each.last_seq for each in files)
        into = LakeFile(files[0].table, files[0].date, files[0].host, first, last)
        if not dry_run:
            put_merged(lake, into, union(files), files)
        return [RepairStep("unite", into.key, f"{problem.sentence}: they become {into.key}")]

    def _hidden(self, lake: Lake, each: Partition, *, dry_run: bool) -> list[RepairStep]:
        if dry_run:
            going = [
                hidden
                for file, own in old_hidden(each, self.now_ms, self.grace_ms)
                if (holder := content_of(file)) is not None
                for hidden in own
                if (content := content_of(hidden)) is not None and not lacks(holder, content)
            ]
        else:
            found = Leftovers()
            remove_hidden(lake, each, self.now_ms, self.grace_ms, found)
            going = found.removed
        return [RepairStep("remove_hidden", file.key, f"{file.key} is in a wider file") for file in going]


def _without(files: Sequence[LakeFile], keys: set[str]) -> list[LakeFile]:
    return [each for each in files if each.key not in keys]


def _is_damaged(file: LakeFile) -> bool:
    """Whether no reader will ever read it, which permissions and a failing disk do not mean."""
    try:
        parquet.read([file], schema.table(file.table))
    except (IrregularFileError, OversizedFileError):
        return False
    except BrokenFileError:
        return True
    except (UnusableFileError, LakeError):
        return False
    return False


def _move_aside(lake: Lake, file: LakeFile) -> None:
    content = lake.read(file)
    key = f"{QUARANTINE}/{file.key}"
    lake.store.put(key, content)
    lake.store.confirm(key, content)
    lake.delete(file)
