"""Hidden files that may go: those whose every row is in the file that hides them, once that one is older than the grace."""

from __future__ import annotations

from dataclasses import dataclass, field

from analytics.lake_care.partitions import Partition
from analytics.lake_care.rows import content_of, lacks
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile


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
