"""What kind of failure an error of SQLite is, on every Python: 3.10 gives its text alone."""

from __future__ import annotations

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
