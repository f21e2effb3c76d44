"""The spool: rows on local disk from the moment they exist until the lake has them.

One SQLite file in WAL mode, synced at every commit, so that kill -9 or a power cut loses at most the interval that
was not yet over. Sequence numbers start at the spool's birth in microseconds since the epoch and only climb: a spool
that is lost and begun anew never reuses a number that its host has published under.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.errors import SpoolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS row (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,       -- table of the lake
    time_ms INTEGER NOT NULL, -- the row's own time, for its UTC date
    body TEXT NOT NULL        -- the other columns, JSON
);
CREATE TABLE IF NOT EXISTS fact (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True)
class SpooledRow:
    """One row of one table on its way to the lake."""

    seq: int
    table: str
    time_ms: int
    body: dict[str, Any]


class Spool:
    """The spool in a folder; the file is made where there is none."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(self.folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolError(
                f"cannot use {folder} as a spool: {error.strerror}", "give a writable folder as --spool"
            ) from error
        self._file = self.folder / "spool.sqlite"
        self._inode = 0
        try:
            self._db = self._open()
        except SpoolError:
            os.close(self._lock_fd)
            raise

    def _open(self) -> sqlite3.Connection:
        with self._guarded("open"):
            db = sqlite3.connect(self._file, timeout=10, isolation_level=None)
        try:
            with self._guarded("open"):
                self._prepare(db)
        except SpoolError:
            db.close()
            raise
        self._inode = self._file.stat().st_ino
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Makes the tables where there are none; a spool that is there is only read, so that it opens on a full disk."""
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > _FORMAT:
            raise SpoolError(f"{self._file} was written by a newer fallow", "upgrade fallow, or give another --spool")
        db.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
        if version < _FORMAT:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_SCHEMA)
            with db:
                db.execute("INSERT INTO sqlite_sequence VALUES ('row', ?)", (time.time_ns() // 1000,))
                db.execute(f"PRAGMA user_version={_FORMAT}")

    def lock(self) -> None:
        """Makes this process the only agent on the spool; SpoolError where another one is.

        Numbers go on from now, so that a spool that was put back from a backup never reuses one.
        """
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SpoolError(
                f"another agent runs on the spool {self.folder}", "stop it, or give this one another --spool"
            ) from error
        with self._guarded("write"), self._db:
            self._db.execute(
                "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'row'", (time.time_ns() // 1000,)
            )

    def append(self, rows: Mapping[str, Sequence[Mapping[str, Any]]], facts: Mapping[str, str] | None = None) -> None:
        """Stores rows per table, and facts, in one commit: after a crash either all of them are there or none."""
        self._reopen_if_replaced()
        with self._guarded("write"):
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:  # commits, or rolls back on any error
                self._db.executemany(
                    "INSERT INTO row (name, time_ms, body) VALUES (?, ?, ?)",
                    (
                        (table, row["time"], json.dumps(dict(row), separators=(",", ":")))
                        for table, table_rows in rows.items()
                        for row in table_rows
                    ),
                )
                self._db.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?)", (facts or {}).items())

    def last_seq(self, most: int) -> int | None:
        """The number of the last of the oldest `most` rows; None where the spool is empty."""
        with self._guarded("read"):
            found = self._db.execute(
                "SELECT max(seq) FROM (SELECT seq FROM row ORDER BY seq LIMIT ?)", (most,)
            ).fetchone()[0]
        return None if found is None else int(found)

    def rows_until(self, seq: int) -> Iterator[SpooledRow]:
        """Every row up to and including a number, in order."""
        with self._guarded("read"):
            for number, table, time_ms, body in self._db.execute(
                "SELECT seq, name, time_ms, body FROM row WHERE seq <= ? ORDER BY seq", (seq,)
            ):
                yield SpooledRow(number, table, time_ms, json.loads(body))

    def forget_until(self, seq: int) -> None:
        """Removes rows that the lake has confirmed."""
        with self._guarded("write"), self._db:
            self._db.execute("DELETE FROM row WHERE seq <= ?", (seq,))

    def count(self) -> int:
        """Rows waiting."""
        with self._guarded("read"):
            return int(self._db.execute("SELECT count(*) FROM row").fetchone()[0])

    def note(self, key: str, value: str) -> None:
        """Remembers a fact about the agent across restarts."""
        with self._guarded("write"), self._db:
            self._db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (key, value))

    def noted(self, key: str) -> str | None:
        """A remembered fact."""
        with self._guarded("read"):
            found = self._db.execute("SELECT value FROM fact WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    @contextlib.contextmanager
    def _guarded(self, verb: str) -> Iterator[None]:
        """SQLite's errors as one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise SpoolError(
                f"cannot {verb} the spool {self._file}: {error}",
                "free disk space, or move the file away (unpublished rows in it are lost)",
            ) from error

    def _reopen_if_replaced(self) -> None:
        """Somebody removed or replaced the file: rows written into the old one would reach nobody."""
        try:
            same = self._file.stat().st_ino == self._inode
        except OSError:
            same = False
        if not same:
            self._db.close()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._db = self._open()

    def close(self) -> None:
        """Closes the file and gives up the lock."""
        self._db.close()
        os.close(self._lock_fd)
