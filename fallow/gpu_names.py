"""Names of GPUs whose UUID is unknown: by host and PCI address, else by host and position."""

from __future__ import annotations

import re

STAND_IN = r"/(pci-[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]|gpu-[0-9]+)$"
"""Regular expression for the end of a stand-in name; a UUID has no slash."""


def at_address(host: str, address: str) -> str:
    """Return the name of the GPU at a PCI address such as 0000:17:00.0."""
    return f"{host}/pci-{address}"


def at_position(host: str, position: int) -> str:
    return f"{host}/gpu-{position}"


def is_stand_in(gpu: str) -> bool:
    """Return whether the name stands for a GPU whose UUID is unknown."""
    return re.search(STAND_IN, gpu) is not None
