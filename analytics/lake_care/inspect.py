"""What is wrong with the files of agents beyond a file that cannot be used: ranges that overlap, doubled rows, rows that are hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from analytics.lake_care.partitions import Partition
from analytics.lake_care.rows import content_of, doubled, keyed, lacks
from fallow import parquet, schema
from fallow.errors import LakeError
from fallow.host_identity import INSTALL_KEY
from fallow.lake import Lake, LakeFile, visible
from fallow.stores import Stored

FAULTS = {
    "overlap": "ranges of files overlap, and neither lies inside the other",
    "doubled": "rows are in two files that readers use",
    "two_writers": "two installations have written rows of the same moments",
    "not_covered": "a hidden file holds rows that the file over it lacks",
}
"""The kinds of fault, beside those of a file that cannot be used (`fallow.quarantine.FAULTS`)."""


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
    """`hidden` files are what compaction left for the grace, `partials` what killed writers left: neither is a fault."""

    problems: list[FileFault] = field(default_factory=list)
    hidden: list[LakeFile] = field(default_factory=list)
    partials: list[Stored] = field(default_factory=list)


def inspect(lake: Lake, found: Sequence[Partition], progress: Callable[[float], None] = lambda _: None) -> Inspected:
    """Reads the partitions of more than one file. Raises LakeError where the lake cannot be listed."""
    seen = Inspected(partials=list(lake.store.partials()))
    several = [each for each in found if len(each.files) > 1]
    for number, each in enumerate(several, 1):
        seen.hidden += each.hidden
        seen.problems += faults(each)
        progress(number / len(several))
    return seen


def faults(each: Partition) -> list[FileFault]:
    """The faults of one partition."""
    return [*_overlaps(each), *_doubled(each), *_two_writers(each), *_not_covered(each)]


def _overlaps(each: Partition) -> list[FileFault]:
    return [
        FileFault("overlap", tuple(group), f"{each.name}: {_names(group)} overlap, and neither lies inside the other")
        for group in each.overlaps()
    ]


def _doubled(each: Partition) -> list[FileFault]:
    files = each.visible
    try:
        count = doubled(files) if len(files) > 1 else 0
    except LakeError:  # a file that cannot be used is named by itself
        return []
    return [FileFault("doubled", tuple(files), f"{each.name}: {count} rows are in two files")] if count else []


def _two_writers(each: Partition) -> list[FileFault]:
    """Of one installation the same key may come again, where its clock was put back; of two it is one moment told twice."""
    keys: dict[str, pl.DataFrame] = {}
    files: dict[str, list[LakeFile]] = {}
    try:
        for file in each.visible if len(each.visible) > 1 else ():
            if install := parquet.metadata(file).get(INSTALL_KEY):
                files.setdefault(install, []).append(file)
        if len(files) < 2 or each.table not in _OF_MOMENTS:
            return []
        for install, own in files.items():
            keys[install] = pl.concat([keyed(file) for file in own]).unique()
    except LakeError:  # a file that cannot be used is named by itself
        return []
    every = pl.concat(list(keys.values()))
    count = every.height - every.unique().height
    if not count:
        return []
    sentence = f"{each.name}: {count} rows are of moments that another installation has rows of too; remove the files of one of them"
    return [FileFault("two_writers", tuple(each.visible), sentence)]


def _not_covered(each: Partition) -> list[FileFault]:
    problems = []
    for file in each.visible:
        holder = content_of(file) if file.hides else None
        for hidden in visible(file.hides) if holder is not None else ():
            content = content_of(hidden)
            if holder is not None and content is not None and (count := lacks(holder, content)):
                sentence = f"{hidden.url}: {count} of its rows are not in {_names([file])}, which hides it"
                problems.append(FileFault("not_covered", (file, hidden), sentence))
    return problems


def _names(files: Sequence[LakeFile]) -> str:
    return " and ".join(file.key.rpartition("/")[2] for file in files)
