"""The driver as it is installed: the loaded kernel module, the GPUs on the PCI bus, and the libraries that the loader finds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.catalog import Version, library_version, shown, version
from agent.doctor.host import HostFiles, read
from agent.nvml.pci_devices import PciGpu, list_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.host import HostFiles


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
