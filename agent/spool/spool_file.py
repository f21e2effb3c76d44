"""The spool's database file: opens it in any state, for one agent at a time, and words SQLite's errors."""

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
"""SQLITE_IOERR_SHMSIZE: the log's shared index cannot grow. SQLite reports it as an I/O error on a full disk too."""

_TEXTS = {
    "database or disk is full": FULL,
    "database disk image is malformed": CORRUPT,
    "file is not a database": NOT_A_DATABASE,
}
"""Texts from sqlite3ErrStr in SQLite's main.c. The text of an I/O error is the same for a full and a broken disk."""


def error_code(error: BaseException | None) -> int:
    """Return SQLite's extended result code (sqlite.org/rescode.html); 0 for an unknown one or another error."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return _TEXTS.get(str(error), 0) if code is None else code


def primary_code(error: BaseException | None) -> int:
    return error_code(error) & 0xFF


BALLAST_BYTES = 1 << 20
_BALLAST = "ballast"
_BLOCK_BYTES = 1 << 16


class Ballast:
    """The file `ballast` in a spool's folder. It reserves disk space that a full disk needs later."""

    def __init__(self, folder: Path, size_bytes: int = BALLAST_BYTES) -> None:
        self._folder = folder
        self._size_bytes = size_bytes

    def take(self) -> bool:
        """Fill the file. Return False, and leave no file, where the disk has no space or the folder is unsafe."""
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
                # random bytes, because a file system may compress any other content
                blocks = range(0, self._size_bytes, _BLOCK_BYTES)
                file.writelines(os.urandom(min(_BLOCK_BYTES, self._size_bytes)) for _ in blocks)
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> bool:
        """Delete the file to free its space. Return whether there was a file."""
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
CREATE TABLE IF NOT EXISTS segment ( -- a file of the lake that rows of the spool became
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
"""The fact that holds the number of waiting rows. Counting the rows would read the whole file."""

_CACHE_KB = 256  # an append touches the last pages only
_CHECKPOINT_PAGES = 200  # on a full disk a checkpoint must fit into the ballast's space
_FILE_MODE = 0o640
_PATIENCE_S = 10.0  # for another process's write
_AGENT_PATIENCE_S = 2.0  # the agent keeps rows in memory rather than delay an interval
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: SpoolError) -> bool:
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in _FULL
    return primary_code(cause) == FULL or error_code(cause) == NO_ROOM_FOR_INDEX


def is_damaged(error: SpoolError) -> bool:
    """Return whether the error shows that the file is damaged or not a database."""
    return primary_code(error.__cause__) in (CORRUPT, NOT_A_DATABASE)


class SpoolFile:
    """The database in a spool's folder. The file is created where there is none."""

    def __init__(self, folder: str, *, for_agent: bool = False) -> None:
        """Open the spool. For the agent, open it exclusively and in any state; `mended` describes repairs.

        On a full disk the ballast's space is freed; a damaged file is moved aside and a new file begins. Raises
        SpoolError where another agent runs on the spool, or the spool is not usable.
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
                f"cannot use {folder} as a spool: {error.strerror}", "name a writable folder as --spool"
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
        self._inode = 0  # while it is not open, every append tries to open it again
        self.file_bytes = 0
        """Size of the file in bytes at the last append, without its log."""
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
        """Create a missing file, and check the folder and files again: SQLite opens them by name and follows links.

        Raises as `SpoolFolder` does.
        """
        with contextlib.closing(SpoolFolder(str(self.folder))) as folder:
            # created here for its mode, which the log inherits: other users must not read command lines and names;
            # an existing file is not opened: closing it would release the locks of another connection of this process
            with contextlib.suppress(FileExistsError):
                os.close(folder.open_file(_DATABASE, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE))
            for suffix in ("", "-wal", "-shm", "-journal"):
                folder.judge_file(_DATABASE + suffix)

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Create the tables where there are none. An existing spool is only read, so that it opens on a full disk."""
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > _FORMAT:
            raise SpoolError(f"{self._file} was written by a newer fallow", "upgrade fallow, or name another --spool")
        if 0 < version < _FORMAT:
            raise SpoolError(
                f"{self._file} was written by an older fallow", "move the file away, or name another --spool"
            )
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
        """Make this process the only agent on the spool; SpoolError where another agent runs on it.

        Numbers continue from the current time, so that a spool restored from a backup never reuses a number.
        """
        self._take_lock()
        self._skip_to_now()

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SpoolError(
                f"another agent runs on the spool {self.folder}",
                "stop that agent, or name another --spool for this one",
            ) from error

    def _skip_to_now(self) -> None:
        with self._writing():
            self._db.execute(
                "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'row'", (time.time_ns() // 1000,)
            )

    def _reopen_if_replaced(self) -> None:
        """Open the file again where it was removed or replaced: rows in the old file would be lost."""
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
        """Move a damaged file aside and begin a new one. Return a sentence with the old path; raises SpoolError."""
        self._db.close()
        done = self._move_aside()
        self._db = self._open()
        return done

    def set_aside(self, why: str) -> str:
        """Move the file into a folder below this one, begin a new file and return that folder; raises SpoolError."""
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
            for suffix in ("-wal", "-shm", ""):  # the log is useless without its file or under another name
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self._file}{suffix}").rename(f"{aside}{suffix}")
        return aside

    def _move_aside(self) -> str:
        aside = self._rename(f"{self._file}.damaged-{time.time_ns() // 1_000_000}")
        return f"the spool was damaged and is now {aside}; its unpublished rows are missing from the lake"

    @contextlib.contextmanager
    def _guarded(self, verb: str) -> Iterator[None]:
        """Turn errors of SQLite and the file system into a SpoolError with one sentence."""
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
        """Run the block as one transaction: commit at the end, roll back on any error."""
        with self._guarded("write"):
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                yield

    def checkpoint(self) -> None:
        """Move the log into the file, so that the log restarts and needs no more space."""
        with self._guarded("write"):
            self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def size_bytes(self) -> int:
        """Return the spool's size on disk in bytes, including its log."""
        total = 0
        for suffix in ("", "-wal"):
            with contextlib.suppress(OSError):
                total += Path(f"{self._file}{suffix}").stat().st_size
        return total

    def live_bytes(self) -> int:
        """Return the bytes of the file that hold rows. The others are free, and are used before the file grows."""
        with self._guarded("read"):
            pages, free, size = (
                int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * size

    def free_disk_bytes(self) -> int:
        """Return the free disk space that this user may fill, in bytes; 0 where it is unknown."""
        try:
            facts = os.statvfs(self.folder)
        except OSError:
            return 0
        return facts.f_bavail * facts.f_frsize

    def close(self) -> None:
        self._db.close()
        os.close(self._lock_fd)
