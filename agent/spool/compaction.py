"""The agent's own compaction: an hour's files become one, a day's become one, and the small ones go after a grace.

What is merged (`fallow.parquet_merging`) is read back from the lake and not from the spool: it costs less than reading the rows' JSON
again, works after a spool is lost, and what replaces a file is made of what the store really holds. What is begun and what is to be deleted is noted in the spool
(`CompactionNotes`); a merge that was cut short is done again from the same files under the same name.

Hours are merged only while their day is open, days as a whole: the ranges of two merges, also by `fallow lake compact`, which takes
only days that are over and at rest, lie inside one another or apart.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from agent.spool.spool import read_fact
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, Clock, SystemClock, floor_ms, parse_day_ms, utc_day
from fallow.errors import LakeError
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile
from fallow.parquet_merging import covering, merged_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.settings import Compaction
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
        return covering(self.files(host))

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


_SPREAD_MS = HOUR_MS
"""Over which many hosts' days are merged after they are over."""


@dataclass
class OwnFilesCompactor:
    """What is due of one spool's files in one lake, under one host's name. Run by one process at a time, after publishing."""

    spool: Spool
    lake: Lake
    host: str
    settings: Compaction
    clock: Clock = field(default_factory=SystemClock)
    before_put: Callable[[], None] = lambda: None
    """Asked right before a merged file is stored, and before anything is deleted; its LakeError stops that."""
    said: list[str] = field(default_factory=list)
    """What could not be done, for the log."""

    def run(self) -> None:
        """Does what is due. Raises LakeError where the store fails and SpoolError; the next run goes on where this one was."""
        self._notes = CompactionNotes.read(self.spool, self.lake.root, self.host)
        now_ms = self.clock.now_ms()
        self._take_note_of_published(now_ms)
        for merge in [each for each in self._notes.merges if each.done_ms is None]:
            self._finish(merge)
        days = self._notes.waiting_days() if self.settings.days else ()
        for date in [each for each in days if now_ms >= self._day_due_ms(each)]:
            # one file of each table of a day that is over; tables whose files cannot be merged keep them
            for table in schema.OF_AGENTS:
                files = [each for each in self._visible(table.name, date) if each.first_seq >= AGENT_FIRST_SEQ]
                if len(files) > 1:
                    self._merge(files)
            self._notes.close_day(date, self.clock.now_ms())
            self._keep()
        self._merge_hours(now_ms)
        self._delete_replaced(now_ms)
        self._notes.forget_old_days(now_ms)
        self._keep()

    def _take_note_of_published(self, now_ms: int) -> None:
        if not self._notes.days:  # the first run with this spool: what other ones left
            today_ms = floor_ms(now_ms, DAY_MS)
            self._notes.open_days(utc_day(today_ms - back * DAY_MS) for back in range(self.settings.back_days + 1))
        published = [
            each
            for each in self.spool.published_files()
            if (each.lake, each.host) == (self.lake.root, self.host) and each.batch > self._notes.seen_batch
        ]
        for each in published:
            small = Small(each.first_seq, each.last_seq, floor_ms(each.published_ms, HOUR_MS))
            self._notes.add_published(each.table, utc_day(each.day_ms), small, each.batch)
        self._keep()

    def _day_due_ms(self, date: str) -> int:
        # a host's share of the spread is its own, and the same every day
        spread_ms = zlib.crc32(self.host.encode()) % min(_SPREAD_MS, 4 * self.settings.lateness_ms + 1)
        return parse_day_ms(date) + DAY_MS + self.settings.lateness_ms + spread_ms

    def _merge_hours(self, now_ms: int) -> None:
        """One file of each hour that is over, of days that are not due as a whole before long."""
        for (table, date), hours in self._notes.hours_before(floor_ms(now_ms, HOUR_MS)):
            if now_ms < self._day_due_ms(date) - HOUR_MS:
                there = {(each.first_seq, each.last_seq): each for each in self._visible(table, date)}
                for smalls in hours:
                    for files in _contiguous(smalls, there):
                        self._merge(files)
            self._notes.forget_hours(table, date, hours)
            self._keep()

    def _visible(self, table: str, date: str) -> list[LakeFile]:
        return self.lake.files(table, hosts=[self.host], dates=[date])

    def _merge(self, files: Sequence[LakeFile]) -> None:
        first = files[0]
        sources = tuple((each.first_seq, each.last_seq) for each in files)
        merge = Merge(first.table, first.date, sources)
        self._notes.merges.append(merge)
        self._keep()
        self._finish(merge)

    def _finish(self, merge: Merge) -> None:
        """Stores the merged file and takes note of it; lets go of a merge whose files have gone or cannot be merged."""
        into = merge.into(self.host)
        try:
            data = merged_files(self.lake, merge.files(self.host), in_little_memory=True)
        except FileNotFoundError:  # somebody else has merged them
            self._let_go(merge)
            return
        except LakeError as error:
            self.said.append(f"{len(merge.sources)} files of {into.key} are not compacted: {error}")
            self._let_go(merge)
            return
        self.before_put()
        self.lake.put_confirmed(into, data)
        self._notes.done(merge, self.clock.now_ms(), zlib.crc32(data))
        self._keep()

    def _delete_replaced(self, now_ms: int) -> None:
        """Deletes what was merged long enough ago, where the merged file is still what it was."""
        for merge in [each for each in self._notes.merges if each.done_ms is not None]:
            if merge.is_due(now_ms, self.settings.grace_ms):
                self.before_put()
                if self._is_kept(merge):
                    self._delete(merge)
                self._let_go(merge)

    def _is_kept(self, merge: Merge) -> bool:
        into = merge.into(self.host)
        try:
            if zlib.crc32(self.lake.read(into)) == merge.crc:
                return True
        except FileNotFoundError:
            # a wider one has replaced it, and its own merge says whether that is still there
            if any(each.covers(into) and each.key != into.key for each in self._visible(merge.table, merge.date)):
                return False
        self.said.append(f"{into.key} is not what it was: the files that it was made of stay")
        self._notes.open_days([merge.date])
        return False

    def _delete(self, merge: Merge) -> None:
        for file in merge.files(self.host):
            try:
                self.lake.delete(file)
            except LakeError:  # this host may not delete: they stay hidden, until `fallow lake compact` removes them
                return

    def _let_go(self, merge: Merge) -> None:
        self._notes.merges.remove(merge)
        self._keep()

    def _keep(self) -> None:
        self._notes.write(self.spool)


def _contiguous(smalls: Sequence[Small], there: dict[tuple[int, int], LakeFile]) -> Iterator[list[LakeFile]]:
    """The files of an hour, in runs between which nothing else lies: neither a file that the lake has lost nor a foreign one."""
    mine = {(each.first_seq, each.last_seq) for each in smalls}
    known = sorted(mine | there.keys())
    runs: defaultdict[int, list[LakeFile]] = defaultdict(list)
    number = 0
    for span in known:
        if span in mine and span in there:
            runs[number].append(there[span])
        else:
            number += 1
    return (run for run in runs.values() if len(run) > 1)
