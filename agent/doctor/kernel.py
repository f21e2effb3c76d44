"""What the kernel knows of NVIDIA: the loaded module and the GPUs on the PCI bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.doctor.host import listed, read
from agent.doctor.versions import Version, shown, version

if TYPE_CHECKING:
    from pathlib import Path

    from agent.doctor.host import Host

_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"


@dataclass(frozen=True)
class PciGpu:
    """A GPU as the bus shows it; `driver` is the kernel driver bound to it, empty for none; `device` is its PCI device id."""

    address: str
    driver: str
    device: int


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


def read_kernel(host: Host) -> Kernel:
    """Reads /proc/driver/nvidia/version, /sys/module/nvidia/version and the PCI bus."""
    banner = read(host.proc / "driver/nvidia/version")
    line = next((each for each in (banner or "").splitlines() if each.startswith("NVRM version:")), "")
    found = version(line) or version(read(host.sys / "module/nvidia/version") or "")
    return Kernel(found, ("Open Kernel Module" in line) if line else None, tuple(_gpus(host)))


def _gpus(host: Host) -> list[PciGpu]:
    found = []
    for folder in listed(host.sys / "bus/pci/devices", "*"):
        vendor, kind = (read(folder / "vendor") or "").strip(), (read(folder / "class") or "").strip()
        if vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASS):
            found.append(PciGpu(folder.name, _bound_driver(folder), _number(read(folder / "device"))))
    return found


def _number(text: str | None) -> int:
    try:
        return int((text or "").strip(), 16)
    except ValueError:
        return 0


def _bound_driver(folder: Path) -> str:
    try:
        return (folder / "driver").readlink().name
    except OSError:
        return ""
