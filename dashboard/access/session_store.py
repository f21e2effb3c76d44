"""Sessions on the server, in a SQLite file that all processes share: a cookie without a row there has no session."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fallow.errors import ConfigError, FallowError

FILE = "sessions.sqlite"
_PATIENCE_S = 5.0

_TABLE = """
create table if not exists sign_in (
    digest text primary key,       -- SHA-256 of the id in the cookie: a reader of this file cannot take over a session
    user text not null,
    groups text not null,          -- JSON
    address text not null,         -- where the sign-in came from
    began_ms integer not null,
    ends_ms integer not null,
    serial integer not null,       -- number of the newest cookie that a browser has sent back
    seen_ms integer not null,      -- when the browser first sent that cookie
    before integer not null,       -- number of the cookie that the browser sent before it
    offered integer not null,      -- highest number issued
    offered_ms integer not null    -- when that number was issued
)
"""
_COLUMNS = "digest, user, groups, address, began_ms, ends_ms, serial, seen_ms, before, offered, offered_ms"


class SessionStoreError(FallowError):
    """The file of the sessions cannot be read or written."""


@dataclass(frozen=True)
class Session:
    """One sign-in of one browser. Times are milliseconds since the epoch.

    Attributes:
        serial: the number of the newest cookie that the browser has sent back.
        seen_ms: when the browser first sent that cookie.
        before: the number of the cookie that the browser sent before it.
        offered: the highest cookie number issued.
    """

    digest: str
    user: str
    groups: tuple[str, ...]
    address: str
    began_ms: int
    ends_ms: int
    serial: int
    seen_ms: int
    before: int
    offered: int

    @property
    def label(self) -> str:
        """The name of the session in lists and in the audit log."""
        return f"S-{self.digest[:10]}"


class SessionStore:
    """Safe to use from many threads and processes. Every method raises SessionStoreError for an unusable file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def begin(self, user: str, groups: tuple[str, ...], address: str, *, now_ms: int, ends_ms: int) -> str:
        """Create a session and return the id for its cookie. Removes the sessions that have ended by themselves."""
        identity = secrets.token_urlsafe(32)
        row = (digest_of(identity), user, json.dumps(groups), address, now_ms, ends_ms, 0, now_ms, 0, 0, now_ms)
        with self._open() as database:
            database.execute("delete from sign_in where ends_ms <= ?", (now_ms,))
            database.execute(
                f"insert into sign_in ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                row,
            )
        return identity

    def find(self, identity: str, now_ms: int) -> Session | None:
        with self._open() as database:
            query = f"select {_COLUMNS} from sign_in where digest = ? and ends_ms > ?"  # noqa: S608
            row = database.execute(query, (digest_of(identity), now_ms)).fetchone()
        return None if row is None else _session(row)

    def confirm(self, digest: str, serial: int, now_ms: int) -> None:
        """Record that the browser has sent the cookie of that number; of several requests at once, the first counts."""
        with self._open() as database:
            database.execute(
                "update sign_in set before = serial, serial = ?, seen_ms = ?, offered = max(offered, ?) where digest ="
                " ? and serial < ?",
                (serial, now_ms, serial, digest, serial),
            )

    def offer(self, digest: str, serial: int, number: int, now_ms: int, *, again_after_ms: int) -> bool:
        """Return whether this request may issue the next number to the browser with the newest cookie.

        Of several requests at once, one may. A number that the browser has not sent within `again_after_ms` may have
        been lost on the way, so another number may follow it.
        """
        with self._open() as database:
            query = (
                "update sign_in set offered = ?, offered_ms = ? where digest = ? and serial = ? and offered < ? "
                "and (offered = serial or offered_ms <= ? or offered_ms > ?)"
            )
            asked = (number, now_ms, digest, serial, number, now_ms - again_after_ms, now_ms)
            return database.execute(query, asked).rowcount == 1

    def end(self, digest: str) -> None:
        with self._open() as database:
            database.execute("delete from sign_in where digest = ?", (digest,))

    def end_all(self, user: str, now_ms: int) -> int:
        """End all sessions of a user; return their number."""
        with self._open() as database:
            query = "delete from sign_in where user = ? and ends_ms > ?"
            return database.execute(query, (user, now_ms)).rowcount

    def sessions(self, now_ms: int) -> tuple[Session, ...]:
        """Return the sessions that have not ended, by user and start."""
        with self._open() as database:
            query = f"select {_COLUMNS} from sign_in where ends_ms > ? order by user, began_ms"  # noqa: S608
            return tuple(map(_session, database.execute(query, (now_ms,)).fetchall()))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection per call: threads and processes must not share a connection."""
        try:
            self._create()
            with contextlib.closing(sqlite3.connect(self._file, timeout=_PATIENCE_S, isolation_level=None)) as database:
                database.execute(_TABLE)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise SessionStoreError(
                f"the sessions in {self._file} cannot be read or written: {error}",
                "give the pages' user a folder of its own as dashboard.state, with room in it; "
                "a broken file may be removed, which signs all users out",
            ) from error

    def _create(self) -> None:
        """Create the file for its owner only: SQLite itself would create a file that others can read."""
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))


def _session(row: tuple[str, str, str, str, int, int, int, int, int, int, int]) -> Session:
    digest, user, groups, address, began_ms, ends_ms, serial, seen_ms, before, offered, _ = row
    known = tuple(json.loads(groups))
    return Session(digest, user, known, address, began_ms, ends_ms, serial, seen_ms, before, offered)


def digest_of(identity: str) -> str:
    """Return the SHA-256 of an id, which the store keeps instead of the id."""
    return hashlib.sha256(identity.encode()).hexdigest()


def store_in(folder: str) -> SessionStore:
    """Return the store in the folder of dashboard.state, which is created if missing. Raises ConfigError if unusable.

    Without a folder the store is in a temporary one, which is removed when this process ends.
    """
    path = Path(folder) if folder else _temporary_folder()
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(
            f"dashboard.state {folder} cannot be used: {error.strerror}", "name a folder that the pages' user may write"
        ) from error
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(f"every user may write in dashboard.state {folder}", f"chmod o-w {folder}")
    store = SessionStore(path)
    try:
        store.sessions(0)
    except SessionStoreError as error:
        raise ConfigError(error.message, error.hint) from error
    return store


@cache
def _temporary_folder() -> Path:
    """Return the folder of this start, which all worker processes share, also after a reload."""
    folder, owner = tempfile.mkdtemp(prefix="fallow-dashboard-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # workers end too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)
