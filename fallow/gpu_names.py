"""Names of GPUs that never told their UUID: by host and PCI address, else by host and position."""

from __future__ import annotations

import re

STAND_IN = r"/(pci-[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]|gpu-[0-9]+)$"
"""How such a name ends, as a regular expression; a UUID has no slash."""


def at_address(host: str, address: str) -> str:
    """The name of the GPU at a PCI address such as 0000:17:00.0."""
    return f"{host}/pci-{address}"


def at_position(host: str, position: int) -> str:
    return f"{host}/gpu-{position}"


def is_stand_in(gpu: str) -> bool:
    """Whether the name stands for a GPU until it tells its UUID."""
    return re.search(STAND_IN, gpu) is not None
