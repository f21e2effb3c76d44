"""The GPUs on the PCI bus as the kernel shows them in /sys, looked at without the driver's library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NVIDIA = "0x10de"
_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers: a card's audio and USB functions, and NVSwitches, have others."""
_OWN_DRIVER = "nvidia"


@dataclass(frozen=True)
class PciGpu:
    """A GPU as the bus shows it; `driver` is the kernel driver bound to it, empty for none; `device` is its PCI device id."""

    address: str
    """Such as 0000:17:00.0."""
    driver: str
    device: int
    product: tuple[str, ...] = ()
    """PCI ids of chip and board: cards with the same ones are the same product."""
    virtual: bool = False
    """Whether it is a virtual function, for a virtual machine."""

    @property
    def is_hosts_own(self) -> bool:
        """Whether the NVIDIA driver of this host should have it: one that another driver has is passed on, or for a screen."""
        return not self.virtual and self.driver in ("", _OWN_DRIVER)


def list_gpus(sys: Path) -> tuple[PciGpu, ...]:
    """NVIDIA's GPUs in the order of their addresses, which is the driver's as well; none where /sys shows no bus."""
    found = []
    try:
        folders = sorted((sys / "bus/pci/devices").iterdir())
    except OSError:
        return ()
    for folder in folders:
        if _text(folder / "vendor") == _NVIDIA and _text(folder / "class").startswith(_CLASSES):
            ids = tuple(_text(folder / name) for name in ("device", "subsystem_vendor", "subsystem_device"))
            virtual = (folder / "physfn").is_symlink()
            found.append(PciGpu(folder.name, _bound_driver(folder), _number(ids[0]), ids, virtual))
    return tuple(found)


def kernel_address(driver_address: str) -> str:
    """The kernel's way to write the driver's 00000000:17:00.0: it writes four digits of the domain, in small letters."""
    domain, _, rest = driver_address.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def driver_address(kernel_address: str) -> str:
    """The driver's way to write the kernel's 0000:17:00.0."""
    return f"{kernel_address.upper():0>16}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _bound_driver(folder: Path) -> str:
    try:
        return (folder / "driver").readlink().name
    except OSError:
        return ""
