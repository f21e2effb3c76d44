"""The file behind the spool: opening it whatever state it is in, one agent at a time, SQLite's errors as sentences."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent.spool.spool_folder import FOLDER_MODE, SpoolFolder
from fallow.errors import SpoolError, UnsafeSpoolError

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL = 13
CORRUPT = 11
NOT_A_DATABASE = 26
NO_ROOM_FOR_INDEX = 4874
"""SQLITE_IOERR_SHMSIZE: the shared index of the log cannot grow, as on a full disk; SQLite calls that an I/O error."""

_TEXTS = {
    "database or disk is full": FULL,
    "database disk image is malformed": CORRUPT,
    "file is not a database": NOT_A_DATABASE,
}
"""From sqlite3ErrStr in SQLite's main.c; the text of an I/O error does not tell a full disk from a broken one."""


def error_code(error: BaseException | None) -> int:
    """SQLite's extended result code (sqlite.org/rescode.html); 0 where it is unknown or the error is not SQLite's."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return _TEXTS.get(str(error), 0) if code is None else code


def primary_code(error: BaseException | None) -> int:
    return error_code(error) & 0xFF


BALLAST_BYTES = 1 << 20
_BALLAST = "ballast"
_PIECE_BYTES = 1 << 16


class Ballast:
    """The file `ballast` in a spool's folder."""

    def __init__(self, folder: Path, size_bytes: int = BALLAST_BYTES) -> None:
        self._folder = folder
        self._size_bytes = size_bytes

    def take(self) -> bool:
        """Fills the file unless it is full already; False (and no file) where the disk has no room for it, or the folder is unsafe."""
        try:
            with contextlib.closing(SpoolFolder(str(self._folder))) as folder:
                descriptor = folder.open_file(_BALLAST, os.O_WRONLY | os.O_CREAT, _FILE_MODE)
        except UnsafeSpoolError:
            return False
        except (OSError, SpoolError):
            self.release()
            return False
        try:
            with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123  # it is open already
                if os.fstat(descriptor).st_size == self._size_bytes:
                    return True
                file.truncate(0)
                # noise, for a file system may store anything else in less room than it will be asked for
                pieces = range(0, self._size_bytes, _PIECE_BYTES)
                file.writelines(os.urandom(min(_PIECE_BYTES, self._size_bytes)) for _ in pieces)
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> bool:
        """Gives the room back; whether there was any."""
        with contextlib.suppress(OSError):
            (self._folder / _BALLAST).unlink()
            return True
        return False


_DATABASE = "spool.sqlite"
_FORMAT = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS row (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,       -- table of the lake
    time_ms INTEGER NOT NULL, -- the row's own time, for its UTC date
    body TEXT NOT NULL        -- the other columns, JSON
);
CREATE TABLE IF NOT EXISTS fact (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS stretch ( -- a file of the lake that rows of the spool became
    batch INTEGER NOT NULL,   -- number of the last row that was published together with these
    name TEXT NOT NULL,
    day_ms INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    row_count INTEGER NOT NULL,
    lake TEXT NOT NULL,
    host TEXT NOT NULL,
    published_ms INTEGER NOT NULL
);
"""

WAITING = "#waiting"
"""The fact that holds the number of rows that wait: counting them would read the whole file."""

_CACHE_KB = 256  # an append touches the last pages only
_CHECKPOINT_PAGES = 200  # what a checkpoint may need on a full disk has to fit into the ballast
_FILE_MODE = 0o640
_PATIENCE_S = 10.0  # for another process's write
_AGENT_PATIENCE_S = 2.0  # the agent keeps rows in memory rather than an interval waiting
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: SpoolError) -> bool:
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in _FULL
    return primary_code(cause) == FULL or error_code(cause) == NO_ROOM_FOR_INDEX


def is_damaged(error: SpoolError) -> bool:
    """Whether the file is no whole database."""
    return primary_code(error.__cause__) in (CORRUPT, NOT_A_DATABASE)


class SpoolFile:
    """The database in a spool's folder; the file is made where there is none."""

    def __init__(self, folder: str, *, for_agent: bool = False) -> None:
        """Opens the spool; for the agent, alone and whatever state it is in, and `mended` says what had to be done.

        A full disk is given the room that was kept for it; a damaged file is moved aside and a new one begun. Raises
        SpoolError where another agent runs on the spool, or it cannot be used.
        """
        self.mended = ""
        self._patience_s = _AGENT_PATIENCE_S if for_agent else _PATIENCE_S
        self.folder = Path(folder)
        self._file = self.folder / _DATABASE
        try:
            with contextlib.closing(SpoolFolder(folder)) as entered:
                self._lock_fd = entered.open_file("agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SpoolError(
                f"cannot use {folder} as a spool: {error.strerror}", "give a writable folder as --spool"
            ) from error
        try:
            if for_agent:
                self._take_lock()
                self._open_somehow()
            else:
                self._db = self._open()
        except SpoolError:
            os.close(self._lock_fd)
            raise

    def _open_somehow(self) -> None:
        try:
            self._db = self._open()
            self._skip_to_now()
        except UnsafeSpoolError:
            raise
        except SpoolError as error:
            if is_damaged(error):
                self.mended = self._move_aside()
            elif not (is_full(error) and Ballast(self.folder).release()):
                raise
            self._db = self._open()
            self._skip_to_now()

    def _open(self) -> sqlite3.Connection:
        self._inode = 0  # as long as it is not open, every append tries again to open it
        self.file_bytes = 0
        """Size of the file at the last append, without its log."""
        with self._guarded("open"):
            self._make_file()
            db = sqlite3.connect(self._file, timeout=self._patience_s, isolation_level=None)
        try:
            with self._guarded("open"):
                self._prepare(db)
                found = self._file.stat()
                self._inode, self.file_bytes = found.st_ino, found.st_size
        except SpoolError:
            db.close()
            raise
        return db

    def _make_file(self) -> None:
        """Judges the folder and the files anew, for SQLite opens them by name and follows links; raises as `SpoolFolder` does."""
        with contextlib.closing(SpoolFolder(str(self.folder))) as folder:
            # made here for its mode, which the log takes over: command lines and names are nobody else's business;
            # one that is there is left closed: closing it would let go of the locks of another connection of this process
            with contextlib.suppress(FileExistsError):
                os.close(folder.open_file(_DATABASE, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE))
            for suffix in ("", "-wal", "-shm", "-journal"):
                folder.judge_file(_DATABASE + suffix)

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Makes the tables where there are none; a spool that is there is only read, so that it opens on a full disk."""
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > _FORMAT:
            raise SpoolError(f"{self._file} was written by a newer fallow", "upgrade fallow, or give another --spool")
        if 0 < version < _FORMAT:
            raise SpoolError(f"{self._file} was written by an older fallow", "move it away, or give another --spool")
        db.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
        db.execute(f"PRAGMA cache_size=-{_CACHE_KB}")
        db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        if version == 0:
            self._make(db)

    def _make(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("BEGIN IMMEDIATE")
        with db:
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            if db.execute("SELECT count(*) FROM sqlite_sequence").fetchone()[0] == 0:
                db.execute("INSERT INTO sqlite_sequence VALUES ('row', ?)", (time.time_ns() // 1000,))
            db.execute("INSERT OR REPLACE INTO fact VALUES (?, 0)", (WAITING,))
            db.execute(f"PRAGMA user_version={_FORMAT}")

    def lock(self) -> None:
        """Makes this process the only agent on the spool; SpoolError where another one is.

        Numbers go on from now, so that a spool that was put back from a backup never reuses one.
        """
        self._take_lock()
        self._skip_to_now()

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SpoolError(
                f"another agent runs on the spool {self.folder}", "stop it, or give this one another --spool"
            ) from error

    def _skip_to_now(self) -> None:
        with self._writing():
            self._db.execute(
                "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'row'", (time.time_ns() // 1000,)
            )

    def _reopen_if_replaced(self) -> None:
        """Somebody removed or replaced the file: rows written into the old one would reach nobody."""
        try:
            found = self._file.lstat()
            self.file_bytes = found.st_size
            same = found.st_ino == self._inode
        except OSError:
            same = False
        if not same:
            self._db.close()
            self._db = self._open()

    def quarantine(self) -> str:
        """Moves a damaged file out of the way, begins a new one and says where the old one is; raises SpoolError."""
        self._db.close()
        done = self._move_aside()
        self._db = self._open()
        return done

    def set_aside(self, why: str) -> str:
        """Keeps the file in a folder below this one, begins a new one and returns that folder; raises SpoolError."""
        folder = self.folder / f"{why}-{time.time_ns() // 1_000_000}"
        self._db.close()
        with self._guarded("move"):
            folder.mkdir(mode=FOLDER_MODE)
        self._rename(str(folder / self._file.name))
        self._db = self._open()
        self._skip_to_now()
        return str(folder)

    def _rename(self, aside: str) -> str:
        with self._guarded("move"):
            for suffix in ("-wal", "-shm", ""):  # the log is of no use without its file, nor under another name
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self._file}{suffix}").rename(f"{aside}{suffix}")
        return aside

    def _move_aside(self) -> str:
        aside = self._rename(f"{self._file}.damaged-{time.time_ns() // 1_000_000}")
        return f"the spool was damaged and is now {aside}; rows in it that were not published are missing from the lake"

    @contextlib.contextmanager
    def _guarded(self, verb: str) -> Iterator[None]:
        """SQLite's errors, and the file system's, as one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            failed = SpoolError(f"cannot {verb} the spool {self._file}: {error}")
            failed.__cause__ = error
            if is_full(failed):
                failed.hint = "free disk space"
            elif is_damaged(failed):
                failed.hint = "move the file away (unpublished rows in it are lost)"
            else:
                failed.hint = "check the disk and the folder's permissions"
            raise failed from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: commits at the end, or leaves everything as it was on any error."""
        with self._guarded("write"):
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                yield

    def checkpoint(self) -> None:
        """Moves the log into the file, so that the log begins anew and needs no more room."""
        with self._guarded("write"):
            self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def size_bytes(self) -> int:
        """What the spool takes on the disk, its log included."""
        total = 0
        for suffix in ("", "-wal"):
            with contextlib.suppress(OSError):
                total += Path(f"{self._file}{suffix}").stat().st_size
        return total

    def live_bytes(self) -> int:
        """The part of the file that rows take; the rest is free and is filled again before the file grows."""
        with self._guarded("read"):
            pages, free, size = (
                int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * size

    def free_disk_bytes(self) -> int:
        """Room on the disk that this user may fill; 0 where it cannot be told."""
        try:
            facts = os.statvfs(self.folder)
        except OSError:
            return 0
        return facts.f_bavail * facts.f_frsize

    def close(self) -> None:
        self._db.close()
        os.close(self._lock_fd)
