"""Received data that is not in the lake yet: files to which a request is appended before it is answered.

A frame is its length and CRC-32 (little endian, 4 bytes each) and the bytes. A frame that a crash truncated was never
answered, so its sender still has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

from fallow.errors import SpoolError
from fallow.stores.local import sync_folder

_HEAD = struct.Struct("<II")
_SUFFIX = ".otlp"
_DELIVERED, _UNUSABLE = ".delivered", ".unusable"
_SEGMENT_BYTES = 16 * 2**20
"""A whole file is made into rows at once."""


class SpoolFullError(SpoolError):
    """There is no room for another request until the lake takes the spooled rows."""


class RequestSpool:
    """Appends and rotates; one process at a time has a spool."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open or create the folder. Raises SpoolError where another process has it or it cannot be written."""
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner = _lock_file(folder)
            there = [*self._segments(), *self.delivered()]
            self._open(1 + max(map(_number, there), default=0))
            self._bytes = sum(path.stat().st_size for path in there)
        except OSError as error:
            raise SpoolError(
                f"cannot use the spool {folder}: {error.strerror}", "check otlp.spool and its permissions"
            ) from error

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def append(self, payload: bytes) -> None:
        """Keep a request; it is on disk on return. Raises SpoolFullError, and SpoolError if the disk fails."""
        frame = _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
        with self._lock:
            if self._bytes + len(frame) > self._max_bytes:
                raise SpoolFullError(
                    f"the spool {self._folder} is full", "find out why the lake takes no rows, or raise otlp.max_spool"
                )
            start = self._file.tell()
            try:
                self._write(frame)
            except OSError as error:
                os.ftruncate(self._file.fileno(), start)
                self._file.seek(start)
                raise _write_error(self._folder, error) from error
            self._bytes += len(frame)
            if start + len(frame) > _SEGMENT_BYTES:
                with contextlib.suppress(OSError):  # the request is kept; the next one tries again
                    self._begin_next()

    def rotate(self) -> list[Path]:
        """Begin a new file. Return the earlier files with content, the oldest first. Raises SpoolError."""
        with self._lock:
            if self._file.tell():
                try:
                    self._begin_next()
                except OSError as error:
                    raise _write_error(self._folder, error) from error
            return [path for path in self._segments() if _number(path) < self._number]

    def delivered(self) -> list[Path]:
        """Return the files that are marked as delivered and not deleted, the oldest first."""
        return sorted(self._folder.glob(f"{'[0-9]' * 12}{_SUFFIX}{_DELIVERED}"))

    def mark_delivered(self, segment: Path) -> Path:
        """Keep a file that is wholly in the lake, under the returned name. Raises SpoolError."""
        return self._marked(segment, _DELIVERED)[0]

    def forget(self, segments: Iterable[Path]) -> None:
        """Delete files that are wholly in the lake. Raises SpoolError."""
        for path in segments:
            with self._lock:
                try:
                    size = path.stat().st_size
                    path.unlink()
                except OSError as error:
                    raise _write_error(self._folder, error) from error
                self._bytes -= size

    def set_aside(self, segment: Path) -> Path:
        """Take a file out of the spool and keep it under the returned name. Raises SpoolError."""
        kept, size = self._marked(segment, _UNUSABLE)
        with self._lock:
            self._bytes -= size
        return kept

    def _marked(self, segment: Path, mark: str) -> tuple[Path, int]:
        """Return the file with the mark, and its size."""
        try:
            kept = segment.rename(f"{segment}{mark}")
            return kept, kept.stat().st_size
        except OSError as error:
            raise _write_error(self._folder, error) from error

    def close(self) -> None:
        self._file.close()
        self._owner.close()

    def _write(self, frame: bytes) -> None:
        left = memoryview(frame)
        while left:
            left = left[self._file.write(left) :]
        os.fdatasync(self._file.fileno())

    def _begin_next(self) -> None:
        full = self._file
        self._open(self._number + 1)  # where that fails, the earlier file continues
        full.close()

    def _open(self, number: int) -> None:
        path = self._folder / f"{number:012d}{_SUFFIX}"
        file = _opened_file(path, os.O_EXCL)
        try:
            sync_folder(self._folder)  # the file must exist after a power failure too
        except OSError:
            file.close()
            path.unlink()
            raise
        self._file, self._number = file, number

    def _segments(self) -> list[Path]:
        return sorted(self._folder.glob(f"{'[0-9]' * 12}{_SUFFIX}"))


def _number(segment: Path) -> int:
    return int(segment.name.partition(".")[0])


def _lock_file(folder: Path) -> FileIO:
    """Return the lock file, locked while it is open."""
    lock = _opened_file(folder / "lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise SpoolError(
            f"another process has the spool {folder}", "give this one a folder of its own (otlp.spool)"
        ) from error
    return lock


def _opened_file(path: Path, flags: int = 0) -> FileIO:
    """Open for writing, not through a link, and for this user alone, because pushed data names people."""
    return FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600), "wb")


def _write_error(folder: Path, error: OSError) -> SpoolError:
    return SpoolError(f"cannot write the spool {folder}: {error.strerror}", "check that disk")


def frames(segment: Path) -> Iterator[bytes]:
    """Yield a file's requests, up to the first incomplete or damaged one. Raises SpoolError if it cannot be read."""
    try:
        with segment.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, checksum = _HEAD.unpack(head)
                payload = file.read(length)
                if len(payload) < length or zlib.crc32(payload) != checksum:
                    return
                yield payload
    except OSError as error:
        raise SpoolError(f"cannot read {segment}: {error.strerror}", "check that disk") from error
