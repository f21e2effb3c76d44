"""The spool's folder, checked before use: only its owner and root may be able to replace its content.

A folder that others can write to is unsafe, and so is a parent folder of theirs, a link or a foreign file. Any could
make an agent that runs as root overwrite any file. The check opens every folder of the path through its parent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections import deque
from pathlib import Path

from agent.own_process import in_container
from fallow.errors import SpoolError, UnsafeSpoolError

FOLDER_MODE = 0o750
_PARENT_MODE = 0o755
_FILE_MODE = 0o640
_MOST_LINKS = 40
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


class SpoolFolder:
    """An open folder that only this user and root can change."""

    def __init__(self, path: str) -> None:
        """Open the folder, or create it. Raises UnsafeSpoolError, and SpoolError where the folder is not usable."""
        self.path = Path(path)
        try:
            self._descriptor = _walk(Path(path).absolute())
        except OSError as error:
            raise SpoolError(
                f"cannot use {path} as a spool: {error.strerror}", "name a writable folder as --spool"
            ) from error

    def open_file(self, name: str, flags: int, mode: int) -> int:
        """Return a descriptor of a regular file of this user, created if flags allow. Raises OSError, UnsafeSpoolError.

        It never follows a link, waits for a pipe, or truncates a file before the check.
        """
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, mode, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise self._foreign_file_error(name, "it is a link, or not a file") from error
            raise
        if wrong := _fault(os.fstat(descriptor)):
            os.close(descriptor)
            raise self._foreign_file_error(name, wrong)
        return descriptor

    def judge_file(self, name: str) -> None:
        """Raise UnsafeSpoolError where an entry of that name exists that is not a regular file of this user."""
        with contextlib.suppress(FileNotFoundError):
            if wrong := _fault(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)):
                raise self._foreign_file_error(name, wrong)

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """Return the content of a small file; None where there is none. Raises OSError and UnsafeSpoolError."""
        try:
            descriptor = self.open_file(name, os.O_RDONLY, 0)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most_bytes)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file atomically and durably; errors leave the old file. Raises OSError, UnsafeSpoolError."""
        new = f"{name}.new"
        with os.fdopen(self.open_file(new, os.O_WRONLY | os.O_CREAT, _FILE_MODE), "wb") as file:
            file.truncate(0)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.judge_file(name)
        os.replace(new, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def _foreign_file_error(self, name: str, wrong: str) -> UnsafeSpoolError:
        return UnsafeSpoolError(
            f"{self.path / name} cannot be a file of the spool: {wrong}",
            f"find out who created it, remove it, and name a folder of {_user_name(os.geteuid())} as --spool",
        )


def _fault(facts: os.stat_result) -> str:
    """Return why a file cannot be one that this user's agent created; empty where it can."""
    if stat.S_ISLNK(facts.st_mode):
        return "it is a link"
    if not stat.S_ISREG(facts.st_mode):
        return "it is not a regular file"
    if facts.st_uid != os.geteuid():
        return f"it belongs to {_user_name(facts.st_uid)}"
    return "it has other names (hard links)" if facts.st_nlink > 1 else ""


def _walk(path: Path) -> int:
    """Return the folder's descriptor, after creating missing folders at the end. Raises OSError, UnsafeSpoolError."""
    left = deque(path.parts[1:])
    place, descriptor, links = Path("/"), os.open("/", _LOOK | os.O_DIRECTORY), 0
    try:
        while left:
            name = left.popleft()
            found = _entered(descriptor, name, place, is_last=not left)
            facts = os.fstat(found)
            if not stat.S_ISLNK(facts.st_mode):
                place, descriptor = place / name, _replaced(descriptor, found)
                continue
            links += 1
            target = Path(os.readlink("", dir_fd=found) if links <= _MOST_LINKS else name)
            os.close(found)
            _check_links(links)
            if target.is_absolute():
                place, descriptor = Path("/"), _replaced(descriptor, os.open("/", _LOOK))
            left.extendleft(reversed([part for part in target.parts if part != "/"]))
        _judge_end(os.fstat(descriptor), place)
        return _replaced(descriptor, os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor))
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise


_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def _replaced(before: int, after: int) -> int:
    os.close(before)
    return after


def _check_links(links: int) -> None:
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _entered(folder: int, name: str, place: Path, *, is_last: bool) -> int:
    """Return the status of the entry, without following a link; raises UnsafeSpoolError where others can replace it."""
    facts = os.fstat(folder)
    try:
        found = os.open(name, _LOOK, dir_fd=folder)
    except FileNotFoundError:
        if facts.st_uid not in _trusted_uids() and not _is_volume(place):
            raise _folder_error(place, facts) from None
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE if is_last else _PARENT_MODE, dir_fd=folder)
        found = os.open(name, _LOOK, dir_fd=folder)
    try:
        _judge(facts, place, os.fstat(found), name)
    except UnsafeSpoolError:
        os.close(found)
        raise
    return found


def _judge(folder: os.stat_result, place: Path, entry: os.stat_result, name: str) -> None:
    """Raise UnsafeSpoolError where other users can replace the entry."""
    if _is_volume(place):
        return
    if folder.st_uid not in _trusted_uids():
        raise _folder_error(place, folder)
    # in a sticky folder such as /tmp only the folder's owner and the entry's owner can replace the entry
    if folder.st_mode & _WRITABLE and not (folder.st_mode & stat.S_ISVTX and entry.st_uid in _trusted_uids()):
        raise _folder_error(place, folder, name)


def _judge_end(folder: os.stat_result, place: Path) -> None:
    """Raise UnsafeSpoolError where other users can write into the spool's folder, even if it is sticky."""
    if not stat.S_ISDIR(folder.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if _is_volume(place):
        return
    if folder.st_uid not in _trusted_uids() or folder.st_mode & _WRITABLE:
        raise _folder_error(place, folder)


def _trusted_uids() -> tuple[int, ...]:
    return (os.geteuid(), _ROOT)


def _is_volume(place: Path) -> bool:
    """Return whether it is a container's volume: it has no other users, and the orchestrator chooses its owner."""
    return in_container() and os.path.ismount(place)


def _folder_error(place: Path, facts: os.stat_result, name: str = "") -> UnsafeSpoolError:
    me, owner = _user_name(os.geteuid()), _user_name(facts.st_uid)
    what = f"{place / name} cannot hold a spool of {me}" if name else f"{place} cannot hold a spool of {me}"
    if facts.st_uid not in _trusted_uids():
        return UnsafeSpoolError(
            f"{what}: {place} belongs to {owner}, who could make {me} write elsewhere",
            f"run the agent as {owner}, or name a folder of {me} as --spool",
        )
    if facts.st_mode & stat.S_ISVTX:
        return UnsafeSpoolError(
            f"{what}: every user can create files in {place}", f"name a subfolder of it that belongs to {me} as --spool"
        )
    return UnsafeSpoolError(
        f"{what}: users other than {owner} can write to {place}",
        f"remove that right (`chmod go-w {place}`), or name another --spool",
    )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
