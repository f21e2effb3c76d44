"""The host under examination: its files, users and clock, the loaded driver, and the libraries that the loader finds. Reads only."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import re
import struct
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from agent.nvml.installation import PciGpu, list_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Version = tuple[int, ...]
"""580.65.06 is (580, 65, 6)."""
Cuda = tuple[int, int]
"""12.8 is (12, 8)."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)+")
_LIBRARY = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


def version(text: str) -> Version | None:
    """The first dotted number in a text; None where there is none."""
    match = _NUMBERS.search(text)
    return None if match is None else tuple(int(part) for part in match[0].split("."))


def cuda(text: str) -> Cuda | None:
    """Major and minor of the first dotted number in a text."""
    found = version(text)
    return None if found is None else (found[0], found[1])


def library_version(name: str) -> str | None:
    """The driver version in a library's file name, such as `libcuda.so.580.65.06`."""
    match = _LIBRARY.search(name)
    return None if match is None else match[1]


def shown(numbers: Version) -> str:
    """12.8 again; driver versions keep their two digits: 580.65.06."""
    return ".".join(str(part) if index < 2 else f"{part:02}" for index, part in enumerate(numbers))


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


@dataclass(frozen=True)
class Kernel:
    """The loaded nvidia module (None: not loaded, or hidden from here) and the GPUs on the bus."""

    version: Version | None
    open_flavour: bool | None
    gpus: tuple[PciGpu, ...]

    @property
    def version_text(self) -> str:
        """The module's version as NVIDIA writes it; empty where it is not loaded."""
        return "" if self.version is None else shown(self.version)


def read_kernel(host: HostFiles) -> Kernel:
    """Reads /proc/driver/nvidia/version, /sys/module/nvidia/version and the PCI bus."""
    banner = read(host.proc / "driver/nvidia/version")
    line = next((each for each in (banner or "").splitlines() if each.startswith("NVRM version:")), "")
    found = version(line) or version(read(host.sys / "module/nvidia/version") or "")
    return Kernel(found, ("Open Kernel Module" in line) if line else None, list_gpus(host.sys))


_DEFAULT = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
    "/usr/lib64/nvidia",
)
"""The loader's own folders, then those of WSL, of Kubernetes' device plugins on some clouds, and of NixOS."""
_DEEPEST_INCLUDE = 4


@dataclass(frozen=True)
class Copy:
    """One file that a library's name leads to."""

    folder: str
    """Where the loader looked."""
    file: Path
    """What the name there points to in the end."""
    by_variable: bool
    """Whether LD_LIBRARY_PATH leads there, which beats everything else."""

    @property
    def version(self) -> Version | None:
        """The driver that it belongs to, by its file name."""
        return version(library_version(self.file.name) or "")

    @property
    def stub(self) -> bool:
        """Whether it is the toolkit's stand-in for linking, which cannot do anything."""
        return "/stubs" in f"{self.folder}/"

    @property
    def compat(self) -> bool:
        """Whether it comes from a forward-compatibility package (cuda-compat-12-8 and its like)."""
        return "compat" in f"{self.folder}{self.file.parent}"


def copies(host: HostFiles, name: str) -> list[Copy]:
    """The files that a library's name leads to, first the one that the loader takes; each file once."""
    found: dict[Path, Copy] = {}
    for folder, by_variable in _search(host):
        path = Path(folder) / name if by_variable else host.at(f"{folder}/{name}")
        try:
            file = path.resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        found.setdefault(file, Copy(folder, file, by_variable))
    return list(found.values())


def versions_of(host: HostFiles, name: str) -> list[Version]:
    """The driver versions of a library's copies, stubs left out, in the loader's order, each once."""
    found = [copy.version for copy in copies(host, name) if not copy.stub]
    return list(dict.fromkeys(each for each in found if each is not None))


def _search(host: HostFiles) -> Iterator[tuple[str, bool]]:
    for folder in host.paths("LD_LIBRARY_PATH"):
        yield folder, True
    for folder in (*_configured(host, "/etc/ld.so.conf", 0), *_DEFAULT):
        yield folder, False


def _configured(host: HostFiles, path: str, depth: int) -> list[str]:
    """The folders of ld.so.conf and of what it includes."""
    folders = []
    for line in (read(host.at(path)) or "").splitlines():
        entry = line.partition("#")[0].strip()
        if entry.startswith("include ") and depth < _DEEPEST_INCLUDE:
            pattern = entry.removeprefix("include ").strip()
            pattern = pattern if pattern.startswith("/") else f"/etc/{pattern}"
            for file in host.glob(pattern):
                folders += _configured(host, f"/{file.relative_to(host.root)}", depth + 1)
        elif entry.startswith("/"):
            folders.append(entry)
    return folders
