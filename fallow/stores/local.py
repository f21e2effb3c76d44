"""A folder on a local or network file system."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.errors import LakeError
from fallow.stores.model import Stored, not_kept

if TYPE_CHECKING:
    from collections.abc import Iterator


class LocalStore:
    """A folder on a local or network file system."""

    def __init__(self, root: str) -> None:
        self.root = str(Path(root.removeprefix("file://")).expanduser().absolute())

    def exists(self) -> bool:
        try:
            return Path(self.root).is_dir()
        except OSError as error:
            raise LakeError(f"cannot look at {self.root}: {error.strerror}", "check its permissions") from error

    def list(self, prefix: str) -> Iterator[Stored]:
        """Every whole file below the prefix; half-written ones carry a leading dot and are passed over."""
        try:
            yield from self._walk(f"{self.root}/{prefix}" if prefix else self.root)
        except OSError as error:
            raise LakeError(f"cannot list {error.filename}: {error.strerror}", "check its permissions") from error

    def _walk(self, folder: str) -> Iterator[Stored]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from self._walk(entry.path)
                continue
            # a file may be compacted away between the listing and the look at its size
            with contextlib.suppress(FileNotFoundError):
                facts = entry.stat()
                yield Stored(entry.path[len(self.root) + 1 :], facts.st_size, str(facts.st_mtime_ns))

    def look(self, key: str) -> Stored | None:
        """The file under the key; opened for it, because a network file system asks its server anew for an open file."""
        try:
            with Path(self.root, key).open("rb") as file:
                facts = os.fstat(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LakeError(f"cannot open {self.root}/{key}: {error.strerror}", "check its permissions") from error
        return Stored(key, facts.st_size, str(facts.st_mtime_ns))

    def put(self, key: str, data: bytes) -> None:
        """Writes a hidden file beside the target, makes it durable and gives it its name in one step."""
        target = Path(self.root, key)
        partial = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
        try:
            folder_mode = self._folder_mode()
            _make_folder(target.parent, folder_mode)
            # 0o666: what the folders grant, less the right to enter them
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, folder_mode & 0o666)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
            _sync_folder(target.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise LakeError(
                f"cannot write {target}: {error.strerror}",
                "check that the lake is a folder with space that this user may write",
            ) from error

    def _folder_mode(self) -> int:
        """What new folders may grant at most, before the umask: nothing to a group or to others that the root shuts out."""
        try:
            granted = Path(self.root).stat().st_mode
        except FileNotFoundError:
            return 0o777
        return 0o700 | (0o070 if granted & 0o050 else 0) | (0o007 if granted & 0o005 else 0)

    def confirm(self, key: str, data: bytes) -> None:
        """Compares the size: the file was synced under another name and the name is all that can still be missing."""
        found = self.look(key)
        if found is None or found.size_bytes != len(data):
            raise not_kept(f"{self.root}/{key}", len(data), found)

    def delete(self, key: str) -> None:
        target = Path(self.root, key)
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise LakeError(f"cannot remove {target}: {error.strerror}", "check its folder's permissions") from error

    def url(self, key: str) -> str:
        return f"{self.root}/{key}"


def _make_folder(folder: Path, mode: int) -> None:
    """Makes the folder and those above it, each name durable: a file is no safer than the folders that lead to it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, mode)
    folder.mkdir(mode, exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Makes a new name durable: the folder's own entry has to reach the disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
