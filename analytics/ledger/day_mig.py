"""MIG: instances are units of their own, with their share of the GPU; the GPU itself keeps what no instance has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.ledger.columns import Floats, Mask
    from analytics.ledger.day_rows import DayRows

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


@dataclass(frozen=True)
class Shares:
    """The part of a GPU that each row is about, and which rows are of GPUs that are split at that moment.

    `left_out` are rows of instances whose size or parent is unknown: their time is in their parent's.
    """

    share: Floats
    split: Mask
    left_out: Mask


def shares_of(rows: DayRows, instances: Mapping[tuple[str, str], Instance]) -> Shares:
    """Shares of a day's rows, given the instances by host and UUID."""
    share, split = np.ones(len(rows)), np.zeros(len(rows), bool)
    left_out = np.zeros(len(rows), bool)
    codes = {name: code for code, name in enumerate(rows.names)}
    for name, code in codes.items():
        if not name[1].startswith(MIG_PREFIX):
            continue
        mine = np.flatnonzero(rows.gpu == code)
        instance = instances.get(name)
        parent = None if instance is None else codes.get((name[0], instance.parent))
        if instance is None or parent is None:
            left_out[mine] = True
            continue
        share[mine] = instance.share
        whole = np.flatnonzero(rows.gpu == parent)
        first, last = rows.start[mine[0]], rows.start[mine[-1]] + rows.interval[mine[-1]]
        # the same tick writes both rows; half an interval tells one tick from the next
        slack = rows.interval[whole] // 2
        during = whole[(rows.start[whole] >= first - slack) & (rows.start[whole] < last - slack)]
        share[during] -= instance.share
        split[during] = True
    return Shares(np.where(share < 1e-9, 0.0, share), split, left_out)
