"""GPUs on the PCI bus of a made-up /sys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put_on_bus(
    sys: Path, address: str, *, driver: str = "nvidia", kind: str = "0x030200", vendor: str = "0x10de",
    virtual: bool = False, device: str = "0x2330",
) -> None:  # fmt: skip
    """Shows a PCI device; with `driver` bound to it, none where that is empty."""
    folder = sys / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    files = {
        "vendor": vendor,
        "class": kind,
        "device": device,
        "subsystem_vendor": "0x10de",
        "subsystem_device": "0x16c1",
    }
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    if driver:
        bound = sys / "bus/pci/drivers" / driver
        bound.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(bound)
        (bound / address).symlink_to(folder)
    if virtual:
        (folder / "physfn").symlink_to(folder)
