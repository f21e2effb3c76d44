"""The agent's own compaction: an hour's files become one, then a day's; small ones go after a grace period.

A merge (`fallow.parquet_merging`) reads the lake's files, not the spool's rows. That costs less than parsing the rows'
JSON, works after the loss of a spool, and uses what the store really holds. The spool notes merges that began and files
to delete (`CompactionNotes`). An interrupted merge is repeated from the same files under the same name.

Hours are merged only while their day is open, later the whole day. `fallow lake compact` takes only days that are over
and unchanged. So the ranges of two merges are either nested or disjoint.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from agent.spool.spool import read_fact
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, Clock, SystemClock, floor_ms, parse_day_ms, utc_day
from fallow.errors import LakeError
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile
from fallow.parquet_merging import covering, merged_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent.settings import Compaction
    from agent.spool.spool import Spool

_FACT = "#compaction"
_REMEMBERED_MS = 30 * DAY_MS
"""How long the notes keep that a day was closed, so that late rows open it again."""


class Small(NamedTuple):
    """A published file: its table, its date, the start of the hour in which it was published, and its range."""

    table: str
    date: str
    hour_ms: int
    first_seq: int
    last_seq: int


class Merge(NamedTuple):
    """A merge of several files into one. `done_ms`: when the store confirmed the new file, by its content's CRC-32."""

    table: str
    date: str
    sources: tuple[tuple[int, int], ...]
    done_ms: int | None = None
    crc: int = 0

    def files(self, host: str) -> list[LakeFile]:
        return [LakeFile(self.table, self.date, host, first, last) for first, last in self.sources]

    def is_due(self, now_ms: int, grace_ms: int) -> bool:
        """Return whether the merged small files may be deleted, also after a clock that was far ahead is set back."""
        return self.done_ms is not None and abs(now_ms - self.done_ms) >= grace_ms


@dataclass
class CompactionNotes:
    """The state of compaction. `small`: files in no hourly merge; `days`: the time when a day was closed (0: open)."""

    lake: str
    host: str
    seen_batch: int = 0
    small: list[Small] = field(default_factory=list)
    days: dict[str, int] = field(default_factory=dict)
    merges: list[Merge] = field(default_factory=list)

    @classmethod
    def read(cls, spool: Spool, lake: str, host: str) -> CompactionNotes:
        """Return the notes for a lake and host; new ones where the spool's notes belong to others or are damaged."""
        found = read_fact(spool, _FACT, dict, {})
        try:
            if (found["lake"], found["host"]) == (lake, host):
                small = [Small(*each) for each in found["small"]]
                days = {date: int(closed_ms) for date, closed_ms in found["days"].items()}
                merges = [
                    Merge(table, date, tuple((int(first), int(last)) for first, last in sources), done_ms, int(crc))
                    for table, date, sources, done_ms, crc in found["merges"]
                ]
                return cls(lake, host, int(found["seen_batch"]), small, days, merges)
        except (LookupError, TypeError, ValueError, AttributeError):
            pass
        return cls(lake, host)

    def write(self, spool: Spool) -> None:
        """Write the notes to the spool, without a commit where nothing has changed."""
        text = json.dumps(vars(self), separators=(",", ":"))
        if text != spool.noted(_FACT):
            spool.note(_FACT, text)


_SPREAD_MS = HOUR_MS
"""The period after a day's end over which the hosts spread their merges."""


@dataclass
class OwnFilesCompactor:
    """Merges the files of one host in one lake. One process at a time runs it, after publishing."""

    spool: Spool
    lake: Lake
    host: str
    settings: Compaction
    clock: Clock = field(default_factory=SystemClock)
    before_put: Callable[[], None] = lambda: None
    """Called right before a merged file is stored, and before a file is deleted; its LakeError prevents that."""
    messages: list[str] = field(default_factory=list)
    """Merges and deletions that failed, for the log."""

    def run(self) -> None:
        """Run the due merges and deletions. Raises LakeError and SpoolError; the next run continues after an error."""
        self._notes = CompactionNotes.read(self.spool, self.lake.root, self.host)
        now_ms = self.clock.now_ms()
        self._take_note_of_published(now_ms)
        for merge in [each for each in self._notes.merges if each.done_ms is None]:
            self._finish(merge)
        open_days = sorted(date for date, closed_ms in self._notes.days.items() if not closed_ms)
        for date in open_days if self.settings.days else ():
            if now_ms < self._day_due_ms(date):
                continue
            # one file of each table of a day that is over; tables whose files cannot be merged keep them
            for table in schema.OF_AGENTS:
                files = [each for each in self._visible(table.name, date) if each.first_seq >= AGENT_FIRST_SEQ]
                if len(files) > 1:
                    self._merge(files)
            self._notes.days[date] = self.clock.now_ms()
            self._notes.small = [each for each in self._notes.small if each.date != date]
            self._keep()
        self._merge_hours(now_ms)
        self._delete_replaced(now_ms)
        known = self._notes.days.items()
        self._notes.days = {date: closed for date, closed in known if now_ms - parse_day_ms(date) < _REMEMBERED_MS}
        self._keep()

    def _take_note_of_published(self, now_ms: int) -> None:
        notes = self._notes
        if not notes.days:  # the first run with this spool: take the files that other runs left
            today_ms = floor_ms(now_ms, DAY_MS)
            notes.days = {utc_day(today_ms - back * DAY_MS): 0 for back in range(self.settings.back_days + 1)}
        seen_batch = notes.seen_batch
        for each in self.spool.published_files():
            if (each.lake, each.host) == (self.lake.root, self.host) and each.batch > seen_batch:
                date, hour_ms = utc_day(each.day_ms), floor_ms(each.published_ms, HOUR_MS)
                notes.small.append(Small(each.table, date, hour_ms, each.first_seq, each.last_seq))
                notes.seen_batch = max(notes.seen_batch, each.batch)
                notes.days[date] = 0
        self._keep()

    def _day_due_ms(self, date: str) -> int:
        # a host's time within the spread is the same every day
        spread_ms = zlib.crc32(self.host.encode()) % min(_SPREAD_MS, 4 * self.settings.lateness_ms + 1)
        return parse_day_ms(date) + DAY_MS + self.settings.lateness_ms + spread_ms

    def _merge_hours(self, now_ms: int) -> None:
        """Merge the files of each past hour, where the merge of the whole day is not due soon."""
        over = {each for each in self._notes.small if each.hour_ms < floor_ms(now_ms, HOUR_MS)}
        for (table, date), own in groupby(sorted(over), lambda small: (small.table, small.date)):
            if now_ms < self._day_due_ms(date) - HOUR_MS:
                there = {(each.first_seq, each.last_seq): each for each in self._visible(table, date)}
                for _, hour in groupby(own, lambda small: small.hour_ms):
                    for files in _contiguous(list(hour), there):
                        self._merge(files)
            self._notes.small = [
                each for each in self._notes.small if (each.table, each.date) != (table, date) or each not in over
            ]
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
        """Store the merged file and note it. Drop a merge whose files are gone or cannot be merged."""
        into = covering(merge.files(self.host))
        try:
            data = merged_files(self.lake, merge.files(self.host), in_little_memory=True)
        except FileNotFoundError:  # another process has merged them
            self._let_go(merge)
            return
        except LakeError as error:
            self.messages.append(f"{len(merge.sources)} files of {into.key} are not compacted: {error}")
            self._let_go(merge)
            return
        self.before_put()
        self.lake.put_confirmed(into, data)
        done = merge._replace(done_ms=self.clock.now_ms(), crc=zlib.crc32(data))
        self._notes.merges[self._notes.merges.index(merge)] = done
        self._keep()

    def _delete_replaced(self, now_ms: int) -> None:
        """Delete the small files after the grace period, if the merged file has not changed."""
        for merge in [each for each in self._notes.merges if each.done_ms is not None]:
            if merge.is_due(now_ms, self.settings.grace_ms):
                self.before_put()
                if self._is_kept(merge):
                    self._delete(merge)
                self._let_go(merge)

    def _is_kept(self, merge: Merge) -> bool:
        into = covering(merge.files(self.host))
        try:
            if zlib.crc32(self.lake.read(into)) == merge.crc:
                return True
        except FileNotFoundError:
            # a file with a wider range has replaced it; the wider file's own merge checks that one
            if any(each.covers(into) and each.key != into.key for each in self._visible(merge.table, merge.date)):
                return False
        self.messages.append(f"{into.key} has changed, so the files that it was merged from stay")
        self._notes.days[merge.date] = 0
        return False

    def _delete(self, merge: Merge) -> None:
        for file in merge.files(self.host):
            try:
                self.lake.delete(file)
            except LakeError:
                # this host may not delete: the files stay hidden until `fallow lake compact` deletes them
                return

    def _let_go(self, merge: Merge) -> None:
        self._notes.merges.remove(merge)
        self._keep()

    def _keep(self) -> None:
        self._notes.write(self.spool)


def _contiguous(smalls: Sequence[Small], there: dict[tuple[int, int], LakeFile]) -> Iterator[list[LakeFile]]:
    """Return an hour's groups of two or more consecutive files, with no lost or foreign file between them."""
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
