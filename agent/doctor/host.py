"""The examined host, read-only: files, users, clock, the loaded driver, and the libraries that the loader finds."""

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

from agent.attribution.proc import INITIAL_PID_NAMESPACE
from agent.nvml.installation import PciGpu, list_gpus
from fallow.os_user import effective_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Version = tuple[int, ...]
"""580.65.06 is (580, 65, 6)."""
Cuda = tuple[int, int]
"""12.8 is (12, 8)."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)+")
_LIBRARY = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


def version(text: str) -> Version | None:
    """Return the first dotted number in a text; None where there is none."""
    match = _NUMBERS.search(text)
    return None if match is None else tuple(int(part) for part in match[0].split("."))


def cuda(text: str) -> Cuda | None:
    """Return major and minor of the first dotted number in a text."""
    found = version(text)
    return None if found is None else (found[0], found[1])


def shown(numbers: Version) -> str:
    """Return a version as text: 12.8, or for drivers with two digits per part: 580.65.06."""
    return ".".join(str(part) if index < 2 else f"{part:02}" for index, part in enumerate(numbers))


_TIMEX_BYTES = 256  # struct timex has 208 on 64-bit machines
_STATUS_OFFSET = 40
_MAX_ERROR_OFFSET = 24
_STA_UNSYNC = 0x40


@dataclass(frozen=True)
class KernelClock:
    synchronised: bool
    max_error_s: float


def kernel_clock() -> KernelClock | None:
    """Return the kernel's clock state by adjtimex(2), read-only; None where the call is not allowed."""
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
    """Roots of the host's file systems, so that tests can run every check on their own folder."""

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
        """Return the paths below the root that match, sorted; empty where they are unreadable."""
        return listed(self.root, pattern.lstrip("/"))

    def paths(self, variable: str) -> list[str]:
        return [entry for entry in self.environment.get(variable, "").split(os.pathsep) if entry]

    @property
    def kernel(self) -> str:
        """Return the running kernel's release; empty where unknown."""
        return (read(self.proc / "sys/kernel/osrelease") or "").strip()

    @property
    def distribution(self) -> str:
        """Return the family of the package manager: `debian`, `rhel`, `suse` or empty."""
        text = read(self.at("/etc/os-release")) or ""
        names = " ".join(line for line in text.splitlines() if line.startswith(("ID=", "ID_LIKE="))).lower()
        families = {"debian": ("debian", "ubuntu"), "rhel": ("rhel", "fedora", "centos"), "suse": ("suse",)}
        return next((family for family, marks in families.items() if any(mark in names for mark in marks)), "")

    @property
    def wsl(self) -> bool:
        """Return whether this is Windows Subsystem for Linux, with Windows' driver and without NVIDIA device nodes."""
        return "microsoft" in self.kernel.lower()

    @property
    def tegra(self) -> bool:
        """Return whether this is a Jetson board: no GPU on a PCI bus, and a driver in the board's own software."""
        return "nvidia,tegra" in (read(self.proc / "device-tree/compatible") or "")

    @property
    def container(self) -> str:
        """Return the kind of container around this process; empty where there is none or it is unknown."""
        if exists(self.at("/.dockerenv")):
            return "docker"
        if exists(self.at("/run/.containerenv")):
            return "podman"
        if "KUBERNETES_SERVICE_HOST" in self.environment:
            return "kubernetes"
        return (read(self.at("/run/systemd/container")) or "").strip()

    @property
    def initial_pid_namespace(self) -> bool | None:
        """Return whether this process sees every process of the machine; None where /proc does not show it."""
        try:
            return (self.proc / "self/ns/pid").readlink().name == INITIAL_PID_NAMESPACE
        except OSError:
            return None

    def processes(self) -> Iterator[tuple[int, str, str]]:
        """Yield (pid, command name, command line) of every visible process."""
        for entry in listed(self.proc, "[0-9]*"):
            name = (read(entry / "comm") or "").strip()
            if name and entry.name.isdigit():
                yield int(entry.name), name, (read(entry / "cmdline") or "").replace("\0", " ").strip()


def read(path: Path, limit_bytes: int = 1 << 20) -> str | None:
    """Return the text of a file up to a size limit; None where it is unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes).decode("utf-8", "replace")
    except OSError:
        return None


def exists(path: Path) -> bool:
    """Return whether a path exists; False also where this user may not look, where `Path.exists` raises."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def resolved(path: Path) -> Path | None:
    """Return the path after all links; None where it does not exist, or links form a circle."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def listed(folder: Path, pattern: str) -> list[Path]:
    """Return the paths in a folder that match, sorted; empty where it is unreadable."""
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
        """Return whether the file's mode lets this user read it; raises OSError where the file does not exist."""
        return self._has(path, _READ)

    def may_use(self, path: Path) -> bool:
        """Return whether the file's mode lets this user read and write it; raises OSError where it does not exist."""
        return self._has(path, _READ | _WRITE)

    def may_fill(self, folder: Path) -> bool:
        """Return whether the folder's mode lets this user create files; raises OSError where it does not exist."""
        return self._has(folder, _WRITE | _ENTER)

    def _has(self, path: Path, bits: int) -> bool:
        facts = path.stat()
        shift = 6 if facts.st_uid == self.uid else 3 if facts.st_gid in self.groups else 0
        return self.uid == 0 or (facts.st_mode >> shift) & bits == bits


def find_user(name: str) -> User | None:
    """Return the user of that name, or this process's user for an empty name; None where the user does not exist."""
    if not name:
        return User(effective_user(), os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return User(name, entry.pw_uid, frozenset(os.getgrouplist(name, entry.pw_gid)))


def group_name(gid: int) -> str:
    """Return the name of a group; empty where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


@dataclass(frozen=True)
class Kernel:
    """The loaded nvidia module (None: not loaded, or not visible) and the GPUs on the bus."""

    version: Version | None
    open_flavour: bool | None
    gpus: tuple[PciGpu, ...]

    @property
    def version_text(self) -> str:
        """Return the module's version in NVIDIA's form; empty where it is not loaded."""
        return "" if self.version is None else shown(self.version)


def read_kernel(host: HostFiles) -> Kernel:
    """Return the kernel's facts from /proc/driver/nvidia/version, /sys/module/nvidia/version and the PCI bus."""
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
    """One file to which a library's name resolves."""

    folder: str
    """The folder of the loader's search."""
    file: Path
    """The file after all links."""

    @property
    def version(self) -> Version | None:
        """Return the driver version in the file's name, such as `libcuda.so.580.65.06`."""
        match = _LIBRARY.search(self.file.name)
        return None if match is None else version(match[1])

    @property
    def stub(self) -> bool:
        """Return whether it is the toolkit's stub for linking, which has no function."""
        return "/stubs" in f"{self.folder}/"

    @property
    def compat(self) -> bool:
        """Return whether it comes from a forward-compatibility package, such as cuda-compat-12-8."""
        return "compat" in f"{self.folder}{self.file.parent}"


def copies(host: HostFiles, name: str) -> list[Copy]:
    """Return the files to which a library's name resolves, without duplicates; the loader uses the first."""
    found: dict[Path, Copy] = {}
    for folder, by_variable in _search(host):
        path = Path(folder) / name if by_variable else host.at(f"{folder}/{name}")
        if (file := resolved(path)) is not None:
            found.setdefault(file, Copy(folder, file))
    return list(found.values())


def versions_of(host: HostFiles, name: str) -> list[Version]:
    """Return the driver versions of a library's copies, without stubs and duplicates, in the loader's order."""
    found = [copy.version for copy in copies(host, name) if not copy.stub]
    return list(dict.fromkeys(each for each in found if each is not None))


def _search(host: HostFiles) -> Iterator[tuple[str, bool]]:
    for folder in host.paths("LD_LIBRARY_PATH"):
        yield folder, True
    for folder in (*_configured(host, "/etc/ld.so.conf", 0), *_DEFAULT):
        yield folder, False


def _configured(host: HostFiles, path: str, depth: int) -> list[str]:
    """Return the folders in ld.so.conf and its included files."""
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
