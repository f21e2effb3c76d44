"""The spool's folder, judged before anything in it is touched: nobody but its owner and root may be able to swap what is there.

A folder that others can write to, below one that is theirs, or a link or a foreign file in it, could make an agent that runs as
root overwrite any file of the machine. The way is walked component by component, each opened through the one before it.
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
        """Opens it, and makes it where it is not there; raises UnsafeSpoolError, and SpoolError where it cannot be used."""
        self.path = Path(path)
        try:
            self._descriptor = _walk(Path(path).absolute())
        except OSError as error:
            raise SpoolError(
                f"cannot use {path} as a spool: {error.strerror}", "give a writable folder as --spool"
            ) from error

    def open_file(self, name: str, flags: int, mode: int) -> int:
        """A regular file of this user's in the folder, made where the flags say so; raises OSError and UnsafeSpoolError.

        It never follows a link, waits for a pipe or empties a file before it is judged.
        """
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, mode, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise self._foreign(name, "it is a link, or no file") from error
            raise
        if wrong := _what_is_wrong(os.fstat(descriptor)):
            os.close(descriptor)
            raise self._foreign(name, wrong)
        return descriptor

    def judge_file(self, name: str) -> None:
        """Raises UnsafeSpoolError where something of that name is there and is no regular file of this user's."""
        with contextlib.suppress(FileNotFoundError):
            if wrong := _what_is_wrong(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)):
                raise self._foreign(name, wrong)

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """A small file's content; None where there is none. Raises OSError and UnsafeSpoolError."""
        try:
            descriptor = self.open_file(name, os.O_RDONLY, 0)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most_bytes)

    def write(self, name: str, content: bytes) -> None:
        """Puts a small file in place, whole and durable, or leaves the one that is there. Raises OSError and UnsafeSpoolError."""
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

    def _foreign(self, name: str, wrong: str) -> UnsafeSpoolError:
        return UnsafeSpoolError(
            f"{self.path / name} cannot be a file of the spool: {wrong}",
            f"look who put it there, remove it, and give a folder of {_user_name(os.geteuid())}'s own as --spool",
        )


def _what_is_wrong(facts: os.stat_result) -> str:
    """Why a file is not one that this user's agent made; empty where it may be."""
    if stat.S_ISLNK(facts.st_mode):
        return "it is a link"
    if not stat.S_ISREG(facts.st_mode):
        return "it is no regular file"
    if facts.st_uid != os.geteuid():
        return f"it belongs to {_user_name(facts.st_uid)}"
    return "it has other names as well (hard links)" if facts.st_nlink > 1 else ""


def _walk(path: Path) -> int:
    """A descriptor of the folder; what is missing at its end is made. Raises OSError and UnsafeSpoolError."""
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
    """What has that name in the folder, a link itself included; raises UnsafeSpoolError where others can swap it."""
    facts = os.fstat(folder)
    try:
        found = os.open(name, _LOOK, dir_fd=folder)
    except FileNotFoundError:
        if facts.st_uid not in _trusted() and not _is_volume(place):
            raise _refused(place, facts) from None
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
    """Raises UnsafeSpoolError where others can put something else in the place of the entry."""
    if _is_volume(place):
        return
    if folder.st_uid not in _trusted():
        raise _refused(place, folder)
    # in a sticky folder such as /tmp only its owner, and that of the entry, can swap it
    if folder.st_mode & _WRITABLE and not (folder.st_mode & stat.S_ISVTX and entry.st_uid in _trusted()):
        raise _refused(place, folder, name)


def _judge_end(folder: os.stat_result, place: Path) -> None:
    """The same of the spool itself, in which nobody else may make files either: sticky does not help."""
    if not stat.S_ISDIR(folder.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if _is_volume(place):
        return
    if folder.st_uid not in _trusted() or folder.st_mode & _WRITABLE:
        raise _refused(place, folder)


def _trusted() -> tuple[int, ...]:
    return (os.geteuid(), _ROOT)


def _is_volume(place: Path) -> bool:
    """Whether it is a volume of a container: there are no other users in there, and its owner is the orchestrator's choice."""
    return in_container() and os.path.ismount(place)


def _refused(place: Path, facts: os.stat_result, name: str = "") -> UnsafeSpoolError:
    me, owner = _user_name(os.geteuid()), _user_name(facts.st_uid)
    what = f"{place / name} cannot hold a spool of {me}'s" if name else f"{place} cannot hold a spool of {me}'s"
    if facts.st_uid not in _trusted():
        return UnsafeSpoolError(
            f"{what}: {place} belongs to {owner}, who could have {me} write elsewhere",
            f"run the agent as {owner}, or give a folder of {me}'s own as --spool",
        )
    if facts.st_mode & stat.S_ISVTX:
        return UnsafeSpoolError(
            f"{what}: everybody can put files into {place}", f"give a folder in it that is {me}'s own as --spool"
        )
    return UnsafeSpoolError(
        f"{what}: others than {owner} can write to {place}",
        f"take that right away (`chmod go-w {place}`), or give another --spool",
    )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
