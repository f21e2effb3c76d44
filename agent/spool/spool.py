"""The spool: rows on local disk from the moment they exist until the lake has confirmed them.

The spool is one SQLite file in WAL mode, synced at every commit. So kill -9 or a power cut loses at most the current
interval. Sequence numbers start at the spool's creation time in microseconds since the epoch, and only increase. So a
new spool after a lost one never reuses a number under which its host has published.

Rows are published in batches, the oldest first. A published batch stays for a while, with a note of its published
files. If the lake loses a file, its rows are published again under the same name.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from agent.spool.spool_file import WAITING, SpoolFile
from fallow.clock import DAY_MS, utc_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.rows import AnyRow, Rows

APART_UNTIL = "#apart_until"
"""The fact that holds a number: rows up to it share no file with later rows."""

_NO_LIMIT = (1 << 63) - 1
_TRYING = "#trying"
"""The fact that holds the last number of a batch whose publishing has begun."""

_IN_AGENT = "#in_agent"
"""The fact that the agent's own process writes files. It outlives the process only after a crash while writing."""

_DELETED_AT_ONCE = 500  # rows; on a full disk the log of a deletion must fit into the ballast's space
_COMPACTED_FREE_BYTES = 64_000_000
_COMPACTED_LIVE_BYTES = 32_000_000  # compacting holds these bytes in memory

EncodedRow = tuple[str, int, str]
"""The stored form of a row: table, time in ms, body."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class SpooledRow:
    seq: int
    table: str
    time_ms: int
    body: AnyRow


@dataclass(frozen=True)
class Segment:
    """The rows of one table and UTC date between two numbers; they share one file of the lake."""

    table: str
    day_ms: int
    first_seq: int
    last_seq: int
    row_count: int

    @property
    def date(self) -> str:
        return utc_day(self.day_ms)

    @property
    def bounds(self) -> tuple[int, int, str, int, int]:
        """Return the parameters of _ROWS_OF_SEGMENT."""
        return self.first_seq, self.last_seq, self.table, self.day_ms, self.day_ms + DAY_MS


_ROWS_OF_SEGMENT = "FROM row WHERE seq >= ? AND seq <= ? AND name = ? AND time_ms >= ? AND time_ms < ?"


@dataclass(frozen=True)
class PublishedFile(Segment):
    """One file of the lake with rows of the spool; `batch` is the last row's number in its batch."""

    batch: int
    lake: str
    host: str
    published_ms: int


def encoded(rows: Rows) -> list[EncodedRow]:
    """Return the rows in their stored form; KeyError for a row without a time."""
    tables = cast("Mapping[str, Sequence[AnyRow]]", rows)
    return [(table, _time_ms(row), _encode(row)) for table, table_rows in tables.items() for row in table_rows]


def _time_ms(row: AnyRow) -> int:
    time_ms = row["time"]
    if time_ms is None:
        raise KeyError("time")
    return time_ms


class Spool(SpoolFile):
    def append(self, rows: Rows, facts: Mapping[str, str] | None = None) -> None:
        """Store rows per table, and facts, in one commit: after a crash either all exist or none."""
        self.write(encoded(rows), facts or {})

    def write(self, rows: Sequence[EncodedRow], facts: Mapping[str, str]) -> None:
        """Like `append`, for rows in their stored form."""
        self._reopen_if_replaced()
        with self._writing():
            self._db.executemany("INSERT INTO row (name, time_ms, body) VALUES (?, ?, ?)", rows)
            self._db.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?)", facts.items())
            self._add_waiting(len(rows))

    def _add_waiting(self, change: int) -> None:
        self._db.execute("UPDATE fact SET value = value + ? WHERE key = ?", (change, WAITING))

    def count(self) -> int:
        """Return the number of rows that wait to be published."""
        return int(self.noted(WAITING) or 0)

    def last_seq(self, most: int) -> int | None:
        """Return the last number among the oldest `most` waiting rows; None where no row waits.

        After an interrupted try it is the number of that try, so that the same files get the same names again.
        """
        tried = int(self.noted(_TRYING) or 0)
        with self._guarded("read"):
            mark = self._published_until()
            if tried > mark:
                found = self._db.execute("SELECT max(seq) FROM row WHERE seq > ? AND seq <= ?", (mark, tried))
                if (last := found.fetchone()[0]) is not None:
                    return int(last)
            # a file with rows from before and after would hide what another agent published under the name in between
            last = self._last_of(mark, int(self._fact(APART_UNTIL) or 0), most)
            return self._last_of(mark, _NO_LIMIT, most) if last is None else last

    def span_ms(self, segment: Segment) -> tuple[int, int]:
        """Return the first and the last time of the segment's rows, in ms."""
        with self._guarded("read"):
            first, last = self._db.execute(
                f"SELECT min(time_ms), max(time_ms) {_ROWS_OF_SEGMENT}", segment.bounds
            ).fetchone()
        return int(first), int(last)

    def _last_of(self, mark: int, until: int, most: int) -> int | None:
        found = self._db.execute(
            "SELECT max(seq) FROM (SELECT seq FROM row WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?)",
            (mark, until, most),
        )
        last: int | None = found.fetchone()[0]
        return last

    def newest_seq(self) -> int:
        """Return the number of the newest row that the spool ever took; 0 where it never took a row."""
        with self._guarded("read"):
            return int(self._db.execute("SELECT coalesce(max(seq), 0) FROM row").fetchone()[0])

    def _published_until(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(batch), 0) FROM segment").fetchone()[0])

    def try_until(self, seq: int, *, in_agent: bool = False) -> None:
        """Note up to which number rows are about to be published (file names depend on it), and by which process."""
        with self._writing():
            self._set(_TRYING, str(seq))
            if in_agent:
                self._set(_IN_AGENT, "yes")
            else:
                self._unset(_IN_AGENT)

    @contextlib.contextmanager
    def in_agent(self) -> Iterator[None]:
        """While the block runs, note that the agent's own process writes files. A crash leaves the note behind."""
        self.note(_IN_AGENT, "yes")
        try:
            yield
        finally:
            self.forget_in_agent()

    def forget_in_agent(self) -> None:
        if self.ended_in_agent():
            self.forget_fact(_IN_AGENT)

    def ended_in_agent(self) -> bool:
        """Return whether a process of the agent ended while it wrote files itself."""
        return self.noted(_IN_AGENT) is not None

    def segments_until(self, seq: int) -> list[Segment]:
        """Return the segments of the waiting rows up to and including a number, by table and date."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT name, time_ms - (time_ms % :day + :day) % :day AS day_ms, min(seq), max(seq), count(*) FROM row"
                " WHERE seq > :mark AND seq <= :until GROUP BY name, day_ms ORDER BY name, day_ms",
                {"day": DAY_MS, "mark": self._published_until(), "until": seq},
            )
            return [Segment(*each) for each in found]

    def publish_until(self, seq: int, files: Iterable[PublishedFile]) -> None:
        """Note that the lake has confirmed these files, which hold all rows up to a number.

        Does nothing where another publisher has noted it before.
        """
        noted = list(files)
        with self._writing():
            if self._published_until() >= seq:
                return
            self._db.executemany(
                "INSERT INTO segment (name, day_ms, first_seq, last_seq, row_count, batch, lake, host, published_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                map(astuple, noted),
            )
            self._unset(_TRYING)
            self._unset(_IN_AGENT)
            self._add_waiting(-sum(file.row_count for file in noted))

    def published_files(self) -> list[PublishedFile]:
        """Return the noted files of published rows, the oldest first."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT name, day_ms, first_seq, last_seq, row_count, batch, lake, host, published_ms FROM segment"
                " ORDER BY batch, first_seq"
            )
            return [PublishedFile(*each) for each in found]

    def rows_of(self, segment: Segment) -> Iterator[SpooledRow]:
        """Yield the segment's rows in order; fewer than `row_count` where rows have left the spool since."""
        with self._guarded("read"):
            found = self._db.execute(f"SELECT seq, name, time_ms, body {_ROWS_OF_SEGMENT} ORDER BY seq", segment.bounds)
            for number, table, time_ms, body in found:
                yield SpooledRow(number, table, time_ms, json.loads(body))

    def drop(self, segment: Segment, first_seq: int, last_seq: int) -> None:
        """Remove the segment's rows between two numbers; they no longer count as waiting."""
        with self._writing():
            gone = self._db.execute(
                f"DELETE {_ROWS_OF_SEGMENT}", replace(segment, first_seq=first_seq, last_seq=last_seq).bounds
            )
            self._add_waiting(-gone.rowcount)

    def waiting_before(self, time_ms: int, after_seq: int, most: int) -> list[tuple[int, str, int, str]]:
        """Return the oldest waiting rows after a number and before a time: number, table, time and body."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT seq, name, time_ms, body FROM row WHERE seq > ? AND time_ms < ? ORDER BY seq LIMIT ?",
                (max(self._published_until(), after_seq), time_ms, most),
            )
            return list(found)

    def take(self, rows: Sequence[tuple[int, str, int, str]]) -> None:
        """Store rows of another spool under their own numbers; rows that exist here already stay unchanged."""
        with self._writing():
            taken = self._db.executemany(
                "INSERT OR IGNORE INTO row (seq, name, time_ms, body) VALUES (?, ?, ?, ?)", rows
            )
            self._add_waiting(taken.rowcount)

    def drop_rows(self, numbers: Sequence[int]) -> None:
        with self._writing():
            gone = self._db.executemany("DELETE FROM row WHERE seq = ?", ((each,) for each in numbers))
            self._add_waiting(-gone.rowcount)

    def oldest_batch(self) -> int | None:
        """Return the oldest published batch whose rows are still in the spool; None where there is none."""
        with self._guarded("read"):
            found = self._db.execute("SELECT min(batch) FROM segment").fetchone()[0]
        return None if found is None else int(found)

    def forget_until(self, batch: int) -> None:
        """Remove published rows up to and including a batch, in steps small enough for a full disk."""
        while True:
            with self._writing():
                until = min(batch, self._published_until())
                gone = self._db.execute(
                    "DELETE FROM row WHERE seq IN (SELECT seq FROM row WHERE seq <= ? ORDER BY seq LIMIT ?)",
                    (until, _DELETED_AT_ONCE),
                ).rowcount
                # the note of a batch goes last, because it records which rows are published
                if gone < _DELETED_AT_ONCE:
                    self._db.execute("DELETE FROM segment WHERE batch <= ?", (until,))
                    return

    def is_oversized(self) -> bool:
        """Return whether `compact` would free much disk: a backlog enlarged the file, and little of it is in use."""
        live_bytes = self.live_bytes()
        return live_bytes < _COMPACTED_LIVE_BYTES and self.size_bytes() - live_bytes > _COMPACTED_FREE_BYTES

    def compact(self) -> None:
        """Shrink the file to the size of its rows."""
        with self._guarded("compact"):
            self._db.execute("PRAGMA temp_store=MEMORY")  # the disk may be full, and /tmp may be read-only
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def note(self, key: str, value: str) -> None:
        with self._writing():
            self._set(key, value)

    def forget_fact(self, key: str) -> None:
        with self._writing():
            self._unset(key)

    def _set(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (key, value))

    def _unset(self, key: str) -> None:
        self._db.execute("DELETE FROM fact WHERE key = ?", (key,))

    def noted(self, key: str) -> str | None:
        with self._guarded("read"):
            return self._fact(key)

    def _fact(self, key: str) -> str | None:
        found = self._db.execute("SELECT value FROM fact WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])


log = logging.getLogger("fallow.agent")


def read_fact(spool: Spool, key: str, kind: type, default: Any) -> Any:
    """Return a fact, parsed as JSON of a type; the default where it is missing or damaged. Damage is logged."""
    text = spool.noted(key)
    if text is None:
        return default
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, kind):
        return value
    log.warning("the fact %s in the spool is damaged and is ignored", key)
    return default
