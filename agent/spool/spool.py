"""The spool: rows on local disk from the moment they exist until the lake has surely kept them.

One SQLite file in WAL mode, synced at every commit, so that kill -9 or a power cut loses at most the interval that
was not yet over. Sequence numbers start at the spool's birth in microseconds since the epoch and only climb: a spool
that is lost and begun anew never reuses a number that its host has published under.

Rows are published oldest first, in batches. A published batch stays a while, with a note of every file that it became
(a published file): if the lake loses such a file, its rows are still here to be published again under the same name.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, cast

from agent.spool.spool_file import WAITING, SpoolFile
from fallow.clock import DAY_MS, utc_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.rows import AnyRow, Rows

APART_UNTIL = "#apart_until"
"""The fact that holds the last number whose rows share no file with later ones."""

_NO_LIMIT = (1 << 63) - 1
_TRYING = "#trying"
"""The fact that holds the last number of a batch whose publishing has begun."""

_IN_AGENT = "#in_agent"
"""The fact that the agent's own process makes files of rows: where it outlives that process, it may have ended it."""

_DELETED_AT_ONCE = 500  # rows; on a full disk the log of a deletion has to fit into the ballast
_COMPACTED_FREE_BYTES = 64_000_000
_COMPACTED_LIVE_BYTES = 32_000_000  # compacting holds them in memory

EncodedRow = tuple[str, int, str]
"""Table, time in ms and body of a row, as the spool stores them."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class SpooledRow:
    seq: int
    table: str
    time_ms: int
    body: AnyRow


@dataclass(frozen=True)
class Stretch:
    """Rows of one table and UTC date between two numbers, which one file holds, or will."""

    table: str
    day_ms: int
    first_seq: int
    last_seq: int
    row_count: int

    @property
    def date(self) -> str:
        return utc_day(self.day_ms)


@dataclass(frozen=True)
class PublishedFile(Stretch):
    """One file of the lake that rows became; `batch` is the number of the last row that was published with them."""

    batch: int
    lake: str
    host: str
    published_ms: int


def encoded(rows: Rows) -> list[EncodedRow]:
    """The rows as the spool stores them; KeyError for one without a time."""
    tables = cast("Mapping[str, Sequence[AnyRow]]", rows)
    return [(table, _time_ms(row), _encode(row)) for table, table_rows in tables.items() for row in table_rows]


def _time_ms(row: AnyRow) -> int:
    time_ms = row["time"]
    if time_ms is None:
        raise KeyError("time")
    return time_ms


class Spool(SpoolFile):
    def append(self, rows: Rows, facts: Mapping[str, str] | None = None) -> None:
        """Stores rows per table, and facts, in one commit: after a crash either all of them are there or none."""
        self.write(encoded(rows), facts or {})

    def write(self, rows: Sequence[EncodedRow], facts: Mapping[str, str]) -> None:
        """Like `append`, of rows that are encoded already."""
        self._reopen_if_replaced()
        with self._writing():
            self._db.executemany("INSERT INTO row (name, time_ms, body) VALUES (?, ?, ?)", rows)
            self._db.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?)", facts.items())
            self._add_waiting(len(rows))

    def _add_waiting(self, change: int) -> None:
        self._db.execute("UPDATE fact SET value = value + ? WHERE key = ?", (change, WAITING))

    def count(self) -> int:
        """Rows that wait to be published."""
        return int(self.noted(WAITING) or 0)

    def last_seq(self, most: int) -> int | None:
        """The number of the last of the oldest `most` waiting rows; None where none waits.

        After a try that was cut short it is that try's number, so that the same files are made again under the same names.
        """
        tried = int(self.noted(_TRYING) or 0)
        with self._guarded("read"):
            mark = self._published_until()
            if tried > mark:
                found = self._db.execute("SELECT max(seq) FROM row WHERE seq > ? AND seq <= ?", (mark, tried))
                if (last := found.fetchone()[0]) is not None:
                    return int(last)
            # a file over rows of before and of now would hide what others have published under the name in between
            last = self._last_of(mark, int(self._fact(APART_UNTIL) or 0), most)
            return self._last_of(mark, _NO_LIMIT, most) if last is None else last

    def span_ms(self, stretch: Stretch) -> tuple[int, int]:
        """The first and the last time of the stretch's rows."""
        with self._guarded("read"):
            first, last = self._db.execute(
                "SELECT min(time_ms), max(time_ms) FROM row"
                " WHERE seq >= ? AND seq <= ? AND name = ? AND time_ms >= ? AND time_ms < ?",
                (stretch.first_seq, stretch.last_seq, stretch.table, stretch.day_ms, stretch.day_ms + DAY_MS),
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
        """The number of the newest row that the spool ever took; 0 where it never took one."""
        with self._guarded("read"):
            return int(self._db.execute("SELECT coalesce(max(seq), 0) FROM row").fetchone()[0])

    def _published_until(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(batch), 0) FROM stretch").fetchone()[0])

    def try_until(self, seq: int, *, in_agent: bool = False) -> None:
        """Notes that rows up to a number are about to be published, under names that depend on it, and by which process."""
        with self._writing():
            self._set(_TRYING, str(seq))
            if in_agent:
                self._set(_IN_AGENT, "yes")
            else:
                self._unset(_IN_AGENT)

    @contextlib.contextmanager
    def in_agent(self) -> Iterator[None]:
        """Holds the note that files are made in the agent's own process, which stays where that ends meanwhile."""
        self.note(_IN_AGENT, "yes")
        try:
            yield
        finally:
            self.forget_in_agent()

    def forget_in_agent(self) -> None:
        if self.ended_in_agent():
            self.forget_fact(_IN_AGENT)

    def ended_in_agent(self) -> bool:
        """Whether a process of the agent ended while it made files itself."""
        return self.noted(_IN_AGENT) is not None

    def stretches_until(self, seq: int) -> list[Stretch]:
        """The waiting rows up to and including a number, as the files that they become, by table and date."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT name, time_ms - (time_ms % :day + :day) % :day AS day_ms, min(seq), max(seq), count(*) FROM row"
                " WHERE seq > :mark AND seq <= :until GROUP BY name, day_ms ORDER BY name, day_ms",
                {"day": DAY_MS, "mark": self._published_until(), "until": seq},
            )
            return [Stretch(*each) for each in found]

    def publish_until(self, seq: int, files: Iterable[PublishedFile]) -> None:
        """Notes that all rows up to a number have become these files, which the lake has confirmed.

        Does nothing where another publisher has said so before.
        """
        noted = list(files)
        with self._writing():
            if self._published_until() >= seq:
                return
            self._db.executemany(
                "INSERT INTO stretch (name, day_ms, first_seq, last_seq, row_count, batch, lake, host, published_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                map(astuple, noted),
            )
            self._unset(_TRYING)
            self._unset(_IN_AGENT)
            self._add_waiting(-sum(file.row_count for file in noted))

    def published_files(self) -> list[PublishedFile]:
        """The files that published rows became and that are still remembered, oldest first."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT name, day_ms, first_seq, last_seq, row_count, batch, lake, host, published_ms FROM stretch"
                " ORDER BY batch, first_seq"
            )
            return [PublishedFile(*each) for each in found]

    def rows_of(self, stretch: Stretch) -> Iterator[SpooledRow]:
        """Its rows in order, one at a time; fewer than `row_count` where some have left the spool since."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT seq, name, time_ms, body FROM row WHERE seq >= ? AND seq <= ?"
                " AND name = ? AND time_ms >= ? AND time_ms < ? ORDER BY seq",
                (stretch.first_seq, stretch.last_seq, stretch.table, stretch.day_ms, stretch.day_ms + DAY_MS),
            )
            for number, table, time_ms, body in found:
                yield SpooledRow(number, table, time_ms, json.loads(body))

    def drop(self, stretch: Stretch, first_seq: int, last_seq: int) -> None:
        """Removes its rows between two numbers, which do not wait any more."""
        with self._writing():
            gone = self._db.execute(
                "DELETE FROM row WHERE seq >= ? AND seq <= ? AND name = ? AND time_ms >= ? AND time_ms < ?",
                (first_seq, last_seq, stretch.table, stretch.day_ms, stretch.day_ms + DAY_MS),
            )
            self._add_waiting(-gone.rowcount)

    def waiting_before(self, time_ms: int, after_seq: int, most: int) -> list[tuple[int, str, int, str]]:
        """Number, table, time and body of the oldest waiting rows behind a number whose time is before a moment."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT seq, name, time_ms, body FROM row WHERE seq > ? AND time_ms < ? ORDER BY seq LIMIT ?",
                (max(self._published_until(), after_seq), time_ms, most),
            )
            return list(found)

    def take(self, rows: Sequence[tuple[int, str, int, str]]) -> None:
        """Takes rows of another spool under their own numbers; those that it has already are left as they are."""
        with self._writing():
            taken = self._db.executemany(
                "INSERT OR IGNORE INTO row (seq, name, time_ms, body) VALUES (?, ?, ?, ?)", rows
            )
            self._add_waiting(taken.rowcount)

    def drop_rows(self, numbers: Sequence[int]) -> None:
        """Removes waiting rows, which do not wait any more."""
        with self._writing():
            gone = self._db.executemany("DELETE FROM row WHERE seq = ?", ((each,) for each in numbers))
            self._add_waiting(-gone.rowcount)

    def oldest_batch(self) -> int | None:
        """The oldest batch whose rows are still here although they are published; None where there is none."""
        with self._guarded("read"):
            found = self._db.execute("SELECT min(batch) FROM stretch").fetchone()[0]
        return None if found is None else int(found)

    def forget_until(self, batch: int) -> None:
        """Removes published rows up to and including a batch, in small steps: each has to fit on a full disk."""
        while True:
            with self._writing():
                until = min(batch, self._published_until())
                gone = self._db.execute(
                    "DELETE FROM row WHERE seq IN (SELECT seq FROM row WHERE seq <= ? ORDER BY seq LIMIT ?)",
                    (until, _DELETED_AT_ONCE),
                ).rowcount
                if gone < _DELETED_AT_ONCE:  # the note of a batch goes last: it says which rows are published
                    self._db.execute("DELETE FROM stretch WHERE batch <= ?", (until,))
                    return

    def is_oversized(self) -> bool:
        """Whether `compact` would give the disk back what a long backlog took: little of it is still in use."""
        live_bytes = self.live_bytes()
        return live_bytes < _COMPACTED_LIVE_BYTES and self.size_bytes() - live_bytes > _COMPACTED_FREE_BYTES

    def compact(self) -> None:
        """Makes the file as small as its rows."""
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
    """The fact as JSON of that kind; the default, and a line in the log, where it is damaged."""
    text = spool.noted(key)
    if text is None:
        return default
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, kind):
        return value
    log.warning("what the spool remembers of %s cannot be read and is left aside", key)
    return default
