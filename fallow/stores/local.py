"""A folder on a local or network file system."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.errors import IrregularFileError, LakeError, UnreadableFileError
from fallow.lake_marker import no_marker
from fallow.os_user import effective_user
from fallow.stores.model import NOT_PERMITTED, Stored, not_kept, too_large
from fallow.stores.regular_files import NotRegularError, inside, kind_of, may_read, open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_ENDING = ".parquet"
_PARTIAL = ".part"

_DEEPEST = 6
"""Levels of folders below a table that are read; a lake has two."""

_GONE = (errno.ENOENT, errno.EEXIST, errno.ESTALE)
"""Errors if another process removes a folder at the same time: the folder existed (EEXIST), or a handle of a network
file system is of the removed folder (ESTALE)."""

_ATTEMPTS = 20
"""An attempt fails only if another process removes the folder at the same time."""


class LocalStore:
    """A folder on a local or network file system."""

    may_vanish = True

    def __init__(self, root: str) -> None:
        self.root = str(Path(root.removeprefix("file://")).expanduser().absolute())
        self._base = self.root
        """Path of the root: its name, or a descriptor of the folder while it is pinned."""

    def make(self) -> None:
        try:
            _make_folder(Path(self.root), 0o777)
        except OSError as error:
            raise LakeError(
                f"cannot create the folder {self.root}: {error.strerror}",
                f"check the path, or create the folder for this user: `install -d -o USER {self.root}`",
            ) from error

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Use the folder that has the root's name now, even if another file system is mounted or unmounted there."""
        try:
            descriptor = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise no_marker(self.root) from error
        except OSError as error:
            raise LakeError(f"cannot open {self.root}: {error.strerror}", "check its permissions") from error
        self._base = f"/proc/self/fd/{descriptor}"
        try:
            yield
        finally:
            self._base = self.root
            os.close(descriptor)

    def exists(self) -> bool:
        try:
            return Path(self._base).is_dir()
        except OSError as error:
            raise LakeError(f"cannot access {self.root}: {error.strerror}", "check its permissions") from error

    def list(self, prefix: str) -> Iterator[Stored]:
        """Yield the complete files below the prefix; incomplete files begin with a dot and are left out.

        Links to files of the lake are followed, links to folders are not.
        """
        folder = f"{self._base}/{prefix}" if prefix else self._base
        instead = self._instead_of_folder(prefix)
        if instead is None:
            yield from self._walk(folder)
        elif instead:
            yield Stored(prefix, 0, "", "not_regular", f"is {instead}")

    def list_between(self, prefix: str, first: str, last: str) -> Iterator[Stored]:
        if self._instead_of_folder(prefix) is not None:
            yield from self.list(prefix)
            return
        try:
            names = os.listdir(f"{self._base}/{prefix}")  # noqa: PTH208  # ten times as fast for years of days
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._cannot_list(f"{self.root}/{prefix}", error) from error
        for name in sorted(name for name in names if first <= name <= last):
            yield from self.list(f"{prefix}/{name}")

    def folders(self, prefix: str) -> tuple[str, ...]:
        if self._instead_of_folder(prefix) is not None:
            return ()
        try:
            with os.scandir(f"{self._base}/{prefix}") as entries:
                found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            raise self._cannot_list(f"{self.root}/{prefix}", error) from error
        return tuple(os.fsencode(name).decode(errors="backslashreplace") for name in found if not name.startswith("."))

    def _instead_of_folder(self, prefix: str) -> str | None:
        """Return the type of the prefix's first name that is no folder, empty if missing; None if all are folders."""
        path = self._base
        for name in prefix.split("/") if prefix else ():
            path = f"{path}/{name}"
            try:
                mode = os.lstat(path).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return ""
            except OSError as error:
                raise self._cannot_list(path, error) from error
            if not stat.S_ISDIR(mode):
                return "a link, which is not followed" if stat.S_ISLNK(mode) else kind_of(mode)
        return None

    def _walk(self, folder: str, depth: int = 0) -> Iterator[Stored]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if depth == 0:
                raise self._cannot_list(folder, error) from error
            yield Stored(
                self._key(folder),
                0,
                "",
                "unreadable",
                f"cannot be listed by the user {effective_user()}: {error.strerror}",
            )
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not (entry.name.isascii() or _is_text(entry.name)):
                key = os.fsencode(self._key(entry.path)).decode(errors="backslashreplace")
                yield Stored(key, 0, "", "no_host", "has a name that is not UTF-8")
            elif entry.is_dir(follow_symlinks=False) and not entry.name.endswith(_ENDING):
                if depth < _DEEPEST:
                    yield from self._walk(entry.path, depth + 1)
            else:
                # a file may be removed after a merge, between the listing and the reading of its size
                with contextlib.suppress(FileNotFoundError):
                    yield self._look_at(entry)

    def _look_at(self, entry: os.DirEntry[str]) -> Stored:
        key, facts = self._key(entry.path), entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            target = inside(entry.path, self._base)
            facts = facts if target is None else Path(target).stat()
        if not stat.S_ISREG(facts.st_mode):
            return Stored(key, 0, "", "not_regular", f"is not a regular file but {kind_of(facts.st_mode)}")
        if may_read(entry.path, facts):
            return _stored(key, facts)
        # a change of the permission changes the version, because readers then treat the file differently
        return _stored(key, facts, NOT_PERMITTED)

    def _key(self, path: str) -> str:
        return path[len(self._base) + 1 :]

    def _cannot_list(self, path: str, error: OSError) -> LakeError:
        what = f"cannot list {path.replace(self._base, self.root, 1)}: {error.strerror}"
        if not isinstance(error, PermissionError):
            return LakeError(what, "check its permissions")
        return LakeError(
            f"{what} for the user {effective_user()}", "give this user permission to read and enter the folder"
        )

    def look(self, key: str) -> Stored | None:
        """Return the file with the key, after opening it, because a network file system then asks its server again."""
        try:
            with open_regular(f"{self._base}/{key}", self._base) as file:
                facts = os.fstat(file.fileno())
        except NotRegularError as error:
            raise LakeError(f"{self.root}/{key} is not a regular file: {error}", "move it out of the lake") from error
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LakeError(f"cannot open {self.root}/{key}: {error.strerror}", "check its permissions") from error
        return _stored(key, facts)

    def partials(self) -> Iterator[Stored]:
        """Yield the hidden files of `put`, from writers that were killed or are still writing."""
        for folder, folders, files in os.walk(self._base):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                if name.startswith(".") and name.endswith(_PARTIAL):
                    with contextlib.suppress(OSError):  # its writer has finished meanwhile
                        path = f"{folder}/{name}"
                        yield _stored(self._key(path), os.lstat(path))

    def read_small(self, key: str, most_bytes: int) -> bytes | None:
        path = f"{self.root}/{key}"
        try:
            content = read_regular(f"{self._base}/{key}", self._base, most_bytes)
        except NotRegularError as error:
            raise IrregularFileError(f"{path} is not a regular file: {error}", "move it out of the lake") from error
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnreadableFileError(
                f"the user {effective_user()} cannot read {path}: {error.strerror}",
                "give this user permission to read the file and its folders",
            ) from error
        if content is None:
            raise too_large(path, most_bytes)
        return content

    def share(self, key: str) -> None:
        path = Path(self._base, key)
        with contextlib.suppress(OSError):  # only the owner of a file can share it
            path.chmod(self._folder_mode() & 0o644)

    def put(self, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
        """Write a hidden file beside the target, sync it, and rename it in one step."""
        target, shown = Path(self._base, key), self.url(key)
        folder = key.rpartition("/")[0]
        if instead := self._instead_of_folder(folder):
            raise LakeError(
                f"cannot write {shown}: {self.root}/{folder} is, or is inside, {instead}", "move it out of the lake"
            )
        partial = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}{_PARTIAL}")
        try:
            with os.fdopen(self._create(partial), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            before()
            partial.replace(target)
            sync_folder(target.parent)
        except (OSError, LakeError) as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            if isinstance(error, LakeError):
                raise
            if not self.exists():
                raise no_marker(self.root) from error
            raise LakeError(
                f"cannot write {shown}: {error.strerror}",
                "move it out of the lake"
                if isinstance(error, IsADirectoryError)
                else "check that the lake is a folder with free space that this user may write",
            ) from error

    def _create(self, partial: Path) -> int:
        """Return a new file, open for writing; creates a missing folder. Raises OSError, LakeError.

        `fallow lake init` or `fallow doctor` may remove the empty folder meanwhile, but not a folder with the file.
        """
        mode, attempts = self._folder_mode(), _ATTEMPTS
        while True:
            attempts -= 1
            try:
                self._make_below_root(partial.parent, mode)
                # the rights of the folder without the right to enter
                return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o666)
            except OSError as error:
                if error.errno not in _GONE or not attempts:
                    raise

    def _make_below_root(self, folder: Path, mode: int) -> None:
        """Create a folder of the lake and its parents, but never the root, which may be a missing mount."""
        if folder.is_dir():
            return
        if folder == Path(self._base):
            raise no_marker(self.root)
        self._make_below_root(folder.parent, mode)
        folder.mkdir(mode, exist_ok=True)
        sync_folder(folder.parent)

    def _folder_mode(self) -> int:
        """Return the mode of new folders before the umask: groups and others get only rights that the root gives."""
        try:
            granted = Path(self._base).stat().st_mode
        except FileNotFoundError:
            return 0o777
        return 0o700 | (0o070 if granted & 0o050 else 0) | (0o007 if granted & 0o005 else 0)

    def confirm(self, key: str, data: bytes) -> None:
        """Compare the size. The content was synced before the rename, so that only the name can be missing."""
        found = self.look(key)
        if found is None or found.size_bytes != len(data):
            raise not_kept(f"{self.root}/{key}", len(data), found)

    def delete(self, key: str) -> None:
        try:
            Path(self._base, key).unlink(missing_ok=True)
        except OSError as error:
            raise LakeError(
                f"cannot remove {self.url(key)}: {error.strerror}", "check its folder's permissions"
            ) from error

    def url(self, key: str) -> str:
        return f"{self.root}/{key}"


def _stored(key: str, facts: os.stat_result, mark: str = "") -> Stored:
    modified_ms = facts.st_mtime_ns // 1_000_000
    return Stored(key, facts.st_size, f"{facts.st_mtime_ns}{mark}", modified_ms=modified_ms)


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_folder(folder: Path, mode: int) -> None:
    """Create the folder and its parents, and sync each name: a file is only as durable as the folders above it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, mode)
    folder.mkdir(mode, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that new names in it are durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
