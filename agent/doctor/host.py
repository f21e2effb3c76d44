"""The host under examination: where its file systems are mounted, its environment, its clock. Reads only."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import struct
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_TIMEX_BYTES = 256  # struct timex has 208 on 64-bit machines
_STATUS_OFFSET = 40
_MAX_ERROR_OFFSET = 24
_STA_UNSYNC = 0x40
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first PID namespace this fixed number (PROC_PID_INIT_INO)."""


@dataclass(frozen=True)
class KernelClock:
    synchronised: bool
    max_error_s: float


def kernel_clock() -> KernelClock | None:
    """The kernel's word by adjtimex(2), which only reads here; None where it may not be asked."""
    if struct.calcsize("P") != 8:
        return None
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    (status,) = struct.unpack_from("=i", timex, _STATUS_OFFSET)
    (max_error_us,) = struct.unpack_from("=q", timex, _MAX_ERROR_OFFSET)
    return KernelClock(not status & _STA_UNSYNC, max_error_us / 1e6)


@dataclass(frozen=True)
class HostFiles:
    """Roots of the host's file systems, so that every check can be tried on a folder made for it."""

    root: Path = Path("/")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    clock: Callable[[], KernelClock | None] = kernel_clock
    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def glob(self, pattern: str) -> list[Path]:
        """What matches below the root, sorted; empty where nothing may be read."""
        return listed(self.root, pattern.lstrip("/"))

    def paths(self, variable: str) -> list[str]:
        return [entry for entry in self.environment.get(variable, "").split(os.pathsep) if entry]

    @property
    def kernel(self) -> str:
        """The running kernel's release; empty where unknown."""
        return (read(self.proc / "sys/kernel/osrelease") or "").strip()

    @property
    def distribution(self) -> str:
        """`debian`, `rhel`, `suse` or empty: which family of package managers there is."""
        text = read(self.at("/etc/os-release")) or ""
        names = " ".join(line for line in text.splitlines() if line.startswith(("ID=", "ID_LIKE="))).lower()
        families = {"debian": ("debian", "ubuntu"), "rhel": ("rhel", "fedora", "centos"), "suse": ("suse",)}
        return next((family for family, marks in families.items() if any(mark in names for mark in marks)), "")

    @property
    def wsl(self) -> bool:
        """Windows Subsystem for Linux: the driver is Windows', and there are no device nodes of NVIDIA."""
        return "microsoft" in self.kernel.lower()

    @property
    def tegra(self) -> bool:
        """A Jetson board: its GPU hangs on no PCI bus and its driver comes with the board's software."""
        return "nvidia,tegra" in (read(self.proc / "device-tree/compatible") or "")

    @property
    def container(self) -> str:
        """The kind of container around this process; empty where none is seen."""
        if exists(self.at("/.dockerenv")):
            return "docker"
        if exists(self.at("/run/.containerenv")):
            return "podman"
        if "KUBERNETES_SERVICE_HOST" in self.environment:
            return "kubernetes"
        return (read(self.at("/run/systemd/container")) or "").strip()

    @property
    def initial_pid_namespace(self) -> bool | None:
        """Whether this process sees every process of the machine; None where /proc does not say."""
        try:
            return (self.proc / "self/ns/pid").readlink().name == INITIAL_PID_NAMESPACE
        except OSError:
            return None

    def processes(self) -> Iterator[tuple[int, str, str]]:
        """(pid, command name, command line) of every process that can be seen."""
        for entry in listed(self.proc, "[0-9]*"):
            name = (read(entry / "comm") or "").strip()
            if name and entry.name.isdigit():
                yield int(entry.name), name, (read(entry / "cmdline") or "").replace("\0", " ").strip()


def read(path: Path, limit_bytes: int = 1 << 20) -> str | None:
    """The text of a file, at most its beginning; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes).decode("utf-8", "replace")
    except OSError:
        return None


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; False also where this user may not look, which `Path.exists` raises for."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def listed(folder: Path, pattern: str) -> list[Path]:
    """What matches in a folder, sorted; empty where it may not be read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


_READ, _WRITE, _ENTER = 0o4, 0o2, 0o1


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    groups: frozenset[int]

    def may_read(self, path: Path) -> bool:
        """Whether the file's mode lets this user read it; raises OSError where there is no such file."""
        return self._has(path, _READ)

    def may_use(self, path: Path) -> bool:
        """Whether the file's mode lets this user read and write it; raises OSError where there is no such file."""
        return self._has(path, _READ | _WRITE)

    def may_fill(self, folder: Path) -> bool:
        """Whether the folder's mode lets this user make files in it; raises OSError where there is no such folder."""
        return self._has(folder, _WRITE | _ENTER)

    def _has(self, path: Path, bits: int) -> bool:
        facts = path.stat()
        shift = 6 if facts.st_uid == self.uid else 3 if facts.st_gid in self.groups else 0
        return self.uid == 0 or (facts.st_mode >> shift) & bits == bits


def find_user(name: str) -> User | None:
    """The user of that name, or whoever runs this where the name is empty; None where there is no such user."""
    if not name:
        return User(_name(os.geteuid()), os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return User(name, entry.pw_uid, frozenset(os.getgrouplist(name, entry.pw_gid)))


def group_name(gid: int) -> str:
    """The name of a group; empty where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
