"""MIG instances: their names, and their share of the GPU."""

from __future__ import annotations

from dataclasses import dataclass

MIG_PREFIX = "MIG-"
"""The prefix of a MIG instance's UUID in the driver."""

_SLICES = 7
_FOUR_SLICES = ("A30", "RTX PRO 6000")
"""Models whose GPUs have four slices (NVIDIA MIG user guide, supported profiles)."""


@dataclass(frozen=True)
class Instance:
    """A MIG instance: its GPU, and its part of that GPU."""

    parent: str
    share: float


def slices_of(model: str | None) -> int:
    """Return how many slices the GPUs of a model have."""
    return 4 if any(name in (model or "") for name in _FOUR_SLICES) else _SLICES
