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
"""Folders below a table that are entered; a lake has two."""

_GONE = (errno.ENOENT, errno.EEXIST, errno.ESTALE)
"""Refusals because of a folder that another process removes just then: it was there when it was to be made (EEXIST), or an
open handle of a network file system is of the former one (ESTALE)."""

_ATTEMPTS = 20
"""Each further attempt needs another process that removed the folder in the moment before."""


class LocalStore:
    """A folder on a local or network file system."""

    may_vanish = True

    def __init__(self, root: str) -> None:
        self.root = str(Path(root.removeprefix("file://")).expanduser().absolute())
        self._base = self.root
        """Where the root is reached: by its name, or through a descriptor of the folder that had it."""

    def make(self) -> None:
        try:
            _make_folder(Path(self.root), 0o777)
        except OSError as error:
            raise LakeError(
                f"cannot make the folder {self.root}: {error.strerror}",
                f"check the path, or make the folder for this user: `install -d -o USER {self.root}`",
            ) from error

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Meanwhile all goes to the folder that has the root's name now, whatever is mounted or unmounted there."""
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
            raise LakeError(f"cannot look at {self.root}: {error.strerror}", "check its permissions") from error

    def list(self, prefix: str) -> Iterator[Stored]:
        """Every whole file below the prefix; half-written ones carry a leading dot and are passed over.

        Links are followed where they lead to a file of the lake, those to folders never.
        """
        folder = f"{self._base}/{prefix}" if prefix else self._base
        instead = self._instead_of_folder(prefix)
        if instead is None:
            yield from self._walk(folder)
        elif instead:
            yield Stored(prefix, 0, "", "not_regular", f"is {instead}")

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
        """What a folder of the prefix is instead, empty where it is not there; None where all of them are folders."""
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
                # a file may be compacted away between the listing and the look at its size
                with contextlib.suppress(FileNotFoundError):
                    yield self._look_at(entry)

    def _look_at(self, entry: os.DirEntry[str]) -> Stored:
        key, facts = self._key(entry.path), entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            target = inside(entry.path, self._base)
            facts = facts if target is None else Path(target).stat()
        if not stat.S_ISREG(facts.st_mode):
            return Stored(key, 0, "", "not_regular", f"is no regular file but {kind_of(facts.st_mode)}")
        if may_read(entry.path, facts):
            return _stored(key, facts)
        # whoever may read it after all, or no more, reads the same bytes differently
        return _stored(key, facts, NOT_PERMITTED)

    def _key(self, path: str) -> str:
        return path[len(self._base) + 1 :]

    def _cannot_list(self, path: str, error: OSError) -> LakeError:
        what = f"cannot list {path.replace(self._base, self.root, 1)}: {error.strerror}"
        if not isinstance(error, PermissionError):
            return LakeError(what, "check its permissions")
        return LakeError(
            f"{what} for the user {effective_user()}", "give that user permission to read and enter the folder"
        )

    def look(self, key: str) -> Stored | None:
        """The file under the key; opened for it, because a network file system asks its server anew for an open file."""
        try:
            with open_regular(f"{self._base}/{key}", self._base) as file:
                facts = os.fstat(file.fileno())
        except NotRegularError as error:
            raise LakeError(f"{self.root}/{key} is no regular file: {error}", "move it out of the lake") from error
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LakeError(f"cannot open {self.root}/{key}: {error.strerror}", "check its permissions") from error
        return _stored(key, facts)

    def partials(self) -> Iterator[Stored]:
        """Hidden files of writers that were killed, or that are just writing: `put` makes them."""
        for folder, folders, files in os.walk(self._base):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                if name.startswith(".") and name.endswith(_PARTIAL):
                    with contextlib.suppress(OSError):  # its writer has ended meanwhile
                        path = f"{folder}/{name}"
                        yield _stored(self._key(path), os.lstat(path))

    def read_small(self, key: str, most_bytes: int) -> bytes | None:
        path = f"{self.root}/{key}"
        try:
            content = read_regular(f"{self._base}/{key}", self._base, most_bytes)
        except NotRegularError as error:
            raise IrregularFileError(f"{path} is no regular file: {error}", "move it out of the lake") from error
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnreadableFileError(
                f"the user {effective_user()} cannot read {path}: {error.strerror}",
                "give that user permission to read it and its folders",
            ) from error
        if content is None:
            raise too_large(path, most_bytes)
        return content

    def share(self, key: str) -> None:
        path = Path(self._base, key)
        with contextlib.suppress(OSError):  # another user's file is theirs to share
            path.chmod(self._folder_mode() & 0o644)

    def put(self, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
        """Writes a hidden file beside the target, makes it durable and gives it its name in one step."""
        target, shown = Path(self._base, key), self.url(key)
        folder = key.rpartition("/")[0]
        if instead := self._instead_of_folder(folder):
            raise LakeError(
                f"cannot write {shown}: {self.root}/{folder} is or lies in {instead}", "move it out of the lake"
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
                else "check that the lake is a folder with space that this user may write",
            ) from error

    def _create(self, partial: Path) -> int:
        """Return a new file, open for writing, in a folder that is made where it is missing. Raises OSError, LakeError.

        Another process may remove the folder while it is empty, as the maker of a lake and `fallow doctor` do. From the moment
        the file is in the folder, the folder stays.
        """
        mode, attempts = self._folder_mode(), _ATTEMPTS
        while True:
            attempts -= 1
            try:
                self._make_below_root(partial.parent, mode)
                # 0o666: what the folders grant, less the right to enter them
                return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o666)
            except OSError as error:
                if error.errno not in _GONE or not attempts:
                    raise

    def _make_below_root(self, folder: Path, mode: int) -> None:
        """Makes a folder of the lake, and those between: the root is never made here, for it may be a mount that is away."""
        if folder.is_dir():
            return
        if folder == Path(self._base):
            raise no_marker(self.root)
        self._make_below_root(folder.parent, mode)
        folder.mkdir(mode, exist_ok=True)
        sync_folder(folder.parent)

    def _folder_mode(self) -> int:
        """What new folders may grant at most, before the umask: nothing to a group or to others that the root shuts out."""
        try:
            granted = Path(self._base).stat().st_mode
        except FileNotFoundError:
            return 0o777
        return 0o700 | (0o070 if granted & 0o050 else 0) | (0o007 if granted & 0o005 else 0)

    def confirm(self, key: str, data: bytes) -> None:
        """Compares the size: the file was synced under another name and the name is all that can still be missing."""
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
    """Whether a name is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_folder(folder: Path, mode: int) -> None:
    """Makes the folder and those above it, each name durable: a file is no safer than the folders that lead to it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, mode)
    folder.mkdir(mode, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes a new name durable: the folder's own entry has to reach the disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
