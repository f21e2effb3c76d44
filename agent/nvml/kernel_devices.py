"""Which NVIDIA devices the kernel lists: a driver library that was loaded before one came or went does not notice."""

from __future__ import annotations

import os


class NvidiaDevices:
    """The PCI devices that the kernel driver has bound."""

    def __init__(self, sys: str) -> None:
        self._folder = os.path.join(sys, "bus/pci/drivers/nvidia")  # noqa: PTH118  # read every few minutes, cheaply
        self._known = self._list()

    def changed(self) -> bool:
        """Whether they are others than at the last call; a driver that is unloaded altogether is no change."""
        now = self._list()
        if not now or now == self._known:
            return False
        before, self._known = self._known, now
        return bool(before)

    def _list(self) -> frozenset[str]:
        try:
            return frozenset(name for name in os.listdir(self._folder) if name.count(":") == 2)  # noqa: PTH208
        except OSError:
            return frozenset()
