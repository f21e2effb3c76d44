"""What the agent remembers of its compaction, as one fact in the spool."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from agent.spool.spool import read_fact
from fallow.clock import DAY_MS, parse_day_ms
from fallow.lake import LakeFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.spool.spool import Spool

_FACT = "#compaction"
_REMEMBERED_MS = 30 * DAY_MS
"""How long it is known that a day was closed, so that rows that come late open it again."""


class Small(NamedTuple):
    """A published file of a table and date: its range, and the start of the hour in which it was published."""

    first_seq: int
    last_seq: int
    hour_ms: int


@dataclass(frozen=True)
class Merge:
    """Files that become, or became, one. `done_ms` is when the store had confirmed that, with the CRC-32 of its content."""

    table: str
    date: str
    sources: tuple[tuple[int, int], ...]
    done_ms: int | None = None
    crc: int = 0

    def files(self, host: str) -> list[LakeFile]:
        return [LakeFile(self.table, self.date, host, first, last) for first, last in self.sources]

    def into(self, host: str) -> LakeFile:
        return LakeFile(self.table, self.date, host, self.sources[0][0], self.sources[-1][1])

    def is_due(self, now_ms: int, grace_ms: int) -> bool:
        """Whether its files may go; a clock that was far ahead and is put back does not keep them for ever."""
        return self.done_ms is not None and abs(now_ms - self.done_ms) >= grace_ms


@dataclass
class CompactionNotes:
    """`small` are published files by table and date that no hour has taken, `days` when each day was closed (0: it is open)."""

    lake: str
    host: str
    seen_batch: int = 0
    small: dict[str, list[Small]] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)
    merges: list[Merge] = field(default_factory=list)

    @classmethod
    def read(cls, spool: Spool, lake: str, host: str) -> CompactionNotes:
        """The notes for one lake and host; none yet where they are of another one, or damaged."""
        found = read_fact(spool, _FACT, dict, {})
        try:
            if (found["lake"], found["host"]) == (lake, host):
                return cls(
                    lake,
                    host,
                    int(found["seen_batch"]),
                    {key: [Small(*each) for each in own] for key, own in found["small"].items()},
                    {date: int(closed_ms) for date, closed_ms in found["days"].items()},
                    [_merge(*each) for each in found["merges"]],
                )
        except (LookupError, TypeError, ValueError, AttributeError):
            pass
        return cls(lake, host)

    def write(self, spool: Spool) -> None:
        """Notes them; costs no commit where nothing has changed."""
        merges = [[each.table, each.date, each.sources, each.done_ms, each.crc] for each in self.merges]
        text = json.dumps(vars(self) | {"merges": merges}, separators=(",", ":"))
        if text != spool.noted(_FACT):
            spool.note(_FACT, text)

    def add_published(self, table: str, date: str, small: Small, batch: int) -> None:
        self.small.setdefault(f"{table}/{date}", []).append(small)
        self.seen_batch = max(self.seen_batch, batch)
        self.open_days([date])

    def open_days(self, dates: Iterable[str]) -> None:
        self.days |= dict.fromkeys(dates, 0)

    def close_day(self, date: str, now_ms: int) -> None:
        self.days[date] = now_ms
        self.small = {key: own for key, own in self.small.items() if key.partition("/")[2] != date}

    def forget_old_days(self, now_ms: int) -> None:
        self.days = {
            date: closed_ms for date, closed_ms in self.days.items() if now_ms - parse_day_ms(date) < _REMEMBERED_MS
        }

    def waiting_days(self) -> list[str]:
        return sorted(date for date, closed_ms in self.days.items() if not closed_ms)

    def hours_before(self, moment_ms: int) -> list[tuple[tuple[str, str], list[list[Small]]]]:
        """By table and date the files of each hour that is over."""
        found = []
        for key, own in self.small.items():
            table, _, date = key.partition("/")
            hours = [list(each) for hour_ms, each in groupby(own, lambda small: small.hour_ms) if hour_ms < moment_ms]
            if hours:
                found.append(((table, date), hours))
        return found

    def forget_hours(self, table: str, date: str, hours: Sequence[Sequence[Small]]) -> None:
        gone = {small for hour in hours for small in hour}
        key = f"{table}/{date}"
        self.small[key] = [each for each in self.small[key] if each not in gone]
        if not self.small[key]:
            del self.small[key]

    def done(self, merge: Merge, now_ms: int, crc: int) -> None:
        self.merges[self.merges.index(merge)] = replace(merge, done_ms=now_ms, crc=crc)


def _merge(table: str, date: str, sources: Sequence[Sequence[int]], done_ms: int | None, crc: int) -> Merge:
    return Merge(table, date, tuple((int(first), int(last)) for first, last in sources), done_ms, int(crc))
