"""The files that compaction merges by table, date and host: what of them is over, at rest, hidden or overlapping."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, parse_day_ms
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile, visible
from fallow.leases import leased

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
