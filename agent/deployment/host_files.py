"""The files of a host, or of an image that is being made: what is changed and put back, what is shipped, and the agent's user."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROGRAM_TIMEOUT_S = 600


@dataclass
class Host:
    """Where things go, and what has been done; with `dry_run` nothing is done, and `changed` says what would be."""

    root: str = "/"
    dry_run: bool = False
    changed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What this host does not allow, each with what to do by hand."""
    _former: dict[str, tuple[bytes, int] | None] = field(default_factory=dict, repr=False)

    @property
    def is_image(self) -> bool:
        """Whether files go into a folder that is not this machine's own root."""
        return self.root != "/"

    def at(self, path: str) -> Path:
        """Where a path of the host lies on this machine."""
        return Path(self.root, path.lstrip("/"))

    def note(self, what: str) -> None:
        self.changed.append(what)

    def write(self, path: str, text: str, mode: int = 0o644) -> bool:
        """Writes the file whole or not at all; False where it holds that already."""
        data, file = text.encode(), self.at(path)
        former = _read(file)
        if former is not None and former[0] == data:
            return False
        self.note(f"{'wrote' if former is None else 'changed'} {path}")
        if not self.dry_run:
            self._former.setdefault(path, former)
            _replace(file, data, mode)
        return True

    def folder(self, path: str, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Makes the folder where there is none; one that is there keeps its owner and mode."""
        file = self.at(path)
        if file.is_dir():
            return
        self.note(f"made {path}")
        if self.dry_run:
            return
        file.mkdir(parents=True)
        file.chmod(mode)
        if owner is not None:
            os.chown(file, *owner)

    def remove(self, path: str) -> bool:
        """Removes a file, a link or a whole folder; False where there is nothing."""
        file = self.at(path)
        if not (file.is_symlink() or file.exists()):
            return False
        self.note(f"removed {path}")
        if not self.dry_run:
            if file.is_symlink():
                file.unlink()
            elif file.is_dir():
                shutil.rmtree(file)
            else:
                self._former.setdefault(path, _read(file))
                file.unlink()
        return True

    def remove_if_empty(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self.at(path).rmdir()

    def put_back(self) -> None:
        """Undoes what was done to files since the start."""
        for path, former in self._former.items():
            if former is None:
                self.at(path).unlink(missing_ok=True)
            else:
                _replace(self.at(path), *former)
        self._former.clear()

    def run(self, command: Sequence[str], doing: str, owner: tuple[int, int] | None = None) -> str:
        """What the program prints, run as that user and group; raises FallowError with its last words where it fails."""
        user, group = owner or (None, None)
        groups = None if owner is None else ()
        try:
            # into files: a pipe would be waited for as long as an agent that the program has started holds it
            with (
                tempfile.TemporaryFile("w+", errors="replace") as out,
                tempfile.TemporaryFile("w+", errors="replace") as err,
            ):
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    check=False,
                    timeout=_PROGRAM_TIMEOUT_S,
                    user=user,
                    group=group,
                    extra_groups=groups,
                ).returncode
                out.seek(0)
                err.seek(0)
                printed, complaint = out.read(), err.read()
        except OSError as error:
            raise FallowError(
                f"{doing} failed: {command[0]}: {error.strerror}", "install it, or check the path"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise FallowError(f"{doing} took longer than {_PROGRAM_TIMEOUT_S} s", "try it again by hand") from error
        if code:
            said = (complaint.strip() or printed.strip() or f"exit code {code}").splitlines()
            raise FallowError(f"{doing} failed: {said[-1][:300]}", f"try it by hand: {' '.join(command)}"[:500])
        return printed


def _read(file: Path) -> tuple[bytes, int] | None:
    try:
        return file.read_bytes(), file.stat().st_mode & 0o7777
    except (FileNotFoundError, NotADirectoryError):
        return None


def _replace(file: Path, data: bytes, mode: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(descriptor, "wb") as out:  # noqa: PTH123  # a descriptor has no path
            os.fchmod(descriptor, mode)
            out.write(data)
            out.flush()
            os.fsync(descriptor)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


UNIT_FILE = "systemd/fallow-agent.service"
SYSUSERS = "systemd/fallow.sysusers.conf"
EXAMPLE = "fallow.toml"
LOCK = "requirements.txt"
IN_WHEEL = "agent/deployment/files"

_IN_CHECKOUT = {LOCK: "requirements/base.txt"}


def shipped_text(name: str) -> str:
    """The text of a file by its path below deploy/; LOCK is the lock."""
    packed = files("agent.deployment") / "files" / name
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    checkout = Path(__file__).resolve().parents[2]
    return (checkout / _IN_CHECKOUT.get(name, f"deploy/{name}")).read_text(encoding="utf-8")


DEFAULT = "fallow"
SYSUSERS_FILE = "/etc/sysusers.d/fallow.conf"
HOME = "/var/lib/fallow"


def find_user(host: Host, name: str) -> tuple[int, int] | None:
    """Numbers of the user and its group on the host; None where there is none."""
    try:
        lines = host.at("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found = next((line.split(":") for line in lines if line.startswith(f"{name}:")), None)
    if found is not None:
        return int(found[2]), int(found[3])
    return None if host.is_image else _from_directory(name)


def _from_directory(name: str) -> tuple[int, int] | None:
    """A user of LDAP or the like."""
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def ensure_user(host: Host, name: str) -> tuple[int, int] | None:
    """Makes a missing user; the site may have given it a number in the file, which is therefore written once only."""
    if (
        name == DEFAULT
        and not host.at(SYSUSERS_FILE).exists()
        and not host.at("/usr/lib/sysusers.d/fallow.conf").exists()
    ):
        host.write(SYSUSERS_FILE, shipped_text(SYSUSERS))
    found = find_user(host, name)
    if found is not None:
        return found
    command = _command(host, name)
    if command is None:
        host.left_out.append(f"make the user {name}: there is neither systemd-sysusers nor useradd")
        return None
    host.note(f"made the user {name}")
    if host.dry_run:
        return None
    host.run(command, f"making the user {name}")
    return find_user(host, name)


def _command(host: Host, name: str) -> list[str] | None:
    if name == DEFAULT and shutil.which("systemd-sysusers"):
        return ["systemd-sysusers", *([f"--root={host.root}"] if host.is_image else [])]
    if shutil.which("useradd"):
        where = ["--root", host.root] if host.is_image else []
        options = ["--system", "--user-group", "--home-dir", HOME, "--no-create-home", "--shell", "/usr/sbin/nologin"]
        return ["useradd", *where, *options, name]
    return None
