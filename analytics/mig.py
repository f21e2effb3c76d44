"""MIG instances: how they are named, and their share of the GPU."""

from __future__ import annotations

from dataclasses import dataclass

MIG_PREFIX = "MIG-"
"""How the driver begins the UUID of a MIG instance."""

_SLICES = 7
_FOUR_SLICES = ("A30", "RTX PRO 6000")
"""Models whose GPUs have four slices (NVIDIA MIG user guide, supported profiles)."""


@dataclass(frozen=True)
class Instance:
    """A MIG instance: the GPU that it is a part of, and what part."""

    parent: str
    share: float


def slices_of(model: str | None) -> int:
    """How many slices the GPUs of a model have."""
    return 4 if any(name in (model or "") for name in _FOUR_SLICES) else _SLICES
