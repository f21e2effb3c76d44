"""The driver's installation, without loading it: GPUs on the PCI bus, device nodes, and messages for NVML's errors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.kernel_files import link_target, names_in, read_text
from agent.own_process import in_container
from fallow.errors import DriverError

if TYPE_CHECKING:
    from pathlib import Path

_NVIDIA = "0x10de"
_CLASSES = ("0x0300", "0x0302")
"""PCI classes of VGA and 3D controllers; a card's audio and USB functions, and NVSwitches, have other classes."""
_OWN_DRIVER = "nvidia"


@dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus. `driver` is the kernel driver bound to it, empty for none; `device` its PCI device id."""

    address: str
    """Such as 0000:17:00.0."""
    driver: str
    device: int
    product: tuple[str, ...] = ()
    """PCI ids of chip and board; cards with the same ids are the same product."""
    virtual: bool = False
    """Whether it is a virtual function, for a virtual machine."""

    @property
    def is_hosts_own(self) -> bool:
        """Return whether this host's NVIDIA driver should have the GPU: it is not passed through and is no display."""
        return not self.virtual and self.driver in ("", _OWN_DRIVER)


def list_gpus(sys: Path) -> tuple[PciGpu, ...]:
    """Return NVIDIA's GPUs in the order of their addresses, like the driver's order; none where /sys shows no bus."""
    found = []
    for address in sorted(names_in(f"{sys}/bus/pci/devices")):
        folder = f"{sys}/bus/pci/devices/{address}"
        if read_text(f"{folder}/vendor") == _NVIDIA and read_text(f"{folder}/class").startswith(_CLASSES):
            ids = tuple(read_text(f"{folder}/{name}") for name in ("device", "subsystem_vendor", "subsystem_device"))
            driver = link_target(f"{folder}/driver").rpartition("/")[2]
            found.append(PciGpu(address, driver, _number(ids[0]), ids, virtual=bool(link_target(f"{folder}/physfn"))))
    return tuple(found)


def driver_address(kernel_address: str) -> str:
    """Return the driver's form of the kernel's PCI address 0000:17:00.0."""
    return f"{kernel_address.upper():0>16}"


def _number(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


REVOKED = -1
"""A container lost its devices; this is not a code of NVML."""

NOT_STARTED = -2
"""Python ended before it ran the worker's code; this is not a code of NVML."""

INSTALL_HINT = (
    "install fallow for this Python: its processes import nothing from the current folder, not even from a checkout"
)

# NVML's return codes by number: this module is imported where pynvml must not be
_ADVICE = {
    REVOKED: (
        (
            "this container has lost access to the NVIDIA devices (for example through `systemctl daemon-reload` on the"
            " host)"
        ),
        "recreate the container: the agent ends now, so that the container's manager can do it",
    ),
    NOT_STARTED: ("Python cannot start the NVML worker; its output gives the reason", INSTALL_HINT),
    4: (
        "the NVIDIA driver refuses access to this user",
        "give the user access to the device nodes /dev/nvidia* (group `video` on most systems)",
    ),
    9: (
        "the NVIDIA kernel driver is not loaded",
        "load the driver with `modprobe nvidia`, or install it; `nvidia-smi` must work",
    ),
    12: (
        "there is no NVIDIA driver: the dynamic loader finds no libnvidia-ml.so.1",
        "install the NVIDIA driver (`nvidia-smi` must work); pass the GPUs into a container with `--gpus all`",
    ),
    18: (
        "the NVIDIA library and the loaded kernel driver have different versions",
        "reload the driver (`rmmod nvidia && modprobe nvidia`) or reboot after the upgrade",
    ),
}


def driver_error(code: int, message: str) -> DriverError:
    """Return the error for a return code of nvmlInit."""
    what, hint = _ADVICE.get(
        code, (f"the NVIDIA driver is unusable: {message}", "check `nvidia-smi` and the kernel log (`dmesg`)")
    )
    return DriverError(what, hint, code)


_DOWN_FOR_ALL = (9, 18)
_LIBRARY_NOT_FOUND = 12


def is_down_for_all(code: int) -> bool:
    """Return whether a code of nvmlInit means that no process on the host can use the driver, not only this one."""
    return code in _DOWN_FOR_ALL or (code == _LIBRARY_NOT_FOUND and not in_container())


def sees_all_gpus() -> bool:
    """Return whether this process should see all GPUs of the host: outside a container, or in one that has all GPUs.

    A container's /sys shows all cards of the host, even if the container has only some GPUs.
    """
    return not in_container() or os.environ.get("NVIDIA_VISIBLE_DEVICES") == "all"


class NvidiaDevices:
    """The PCI devices that the kernel driver has bound, and the device nodes of GPUs, which a container may get later.

    The driver's library lists its GPUs only when it is loaded; these files show that the GPUs have changed.
    """

    def __init__(self, sys: str, dev: str = "/dev") -> None:
        self._folders = (os.path.join(sys, "bus/pci/drivers/nvidia"), dev)  # noqa: PTH118  # without pathlib: cheaply
        self._dev_ns = self._dev_changed_ns()
        self._known = [_device_names(folder) for folder in self._folders]

    def changed(self) -> bool:
        """Return whether they differ from those at the last call; an unloaded driver is no change."""
        changed = False
        dev_ns, before_ns = self._dev_changed_ns(), self._dev_ns
        self._dev_ns = dev_ns
        # /dev holds hundreds of nodes, and its time changes with every new node; the time of a folder in /sys does not
        for place, folder in enumerate(self._folders if dev_ns != before_ns else self._folders[:1]):
            now, before = _device_names(folder), self._known[place]
            if now:
                self._known[place] = now
                changed = changed or bool(before and now != before)
        return changed

    def _dev_changed_ns(self) -> int:
        try:
            return os.stat(self._folders[1]).st_mtime_ns  # noqa: PTH116
        except OSError:
            return 0


def _device_names(folder: str) -> frozenset[str]:
    """Return the PCI addresses and the nodes such as `nvidia7` in a folder; none where it is unreadable."""
    names = names_in(folder)
    return frozenset(name for name in names if name.count(":") == 2 or (name[:6] == "nvidia" and name[6:].isdecimal()))
