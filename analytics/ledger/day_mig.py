"""MIG: instances are units of their own, with their share of the GPU; the GPU itself keeps what no instance has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.ledger.columns import Floats, Mask
from analytics.ledger.day_rows import DayRows
from analytics.mig import MIG_PREFIX, Instance


@dataclass(frozen=True)
class Shares:
    """The part of a GPU that each row is about, and which rows are of GPUs that are split at that moment.

    `left_out` are rows of instances whose size or parent is unknown: their time is in their parent's. `related` are all
    rows of the other instances and of their GPUs.
    """

    share: Floats
    split: Mask
    left_out: Mask
    related: Mask


def shares_of(rows: DayRows, instances: Mapping[tuple[str, str], Instance]) -> Shares:
    """Shares of a day's rows, given the instances by host and UUID."""
    share, split = np.ones(len(rows)), np.zeros(len(rows), bool)
    left_out, related = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
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
        related[mine] = related[whole] = True
        # the same tick writes both rows; half an interval tells one tick from the next
        start, slack = rows.start[whole], rows.interval[whole] // 2
        for first, last in _spans(rows, mine):
            during = whole[(start >= first - slack) & (start < last - slack)]
            share[during] -= instance.share
            split[during] = True
    return Shares(np.where(share < 1e-9, 0.0, share), split, left_out, related)


def _spans(rows: DayRows, mine: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """The times in which an instance was there: its rows, with what each stands for; a gap beyond that ends it.

    There are none where every row of the instance was one that cannot be, as with no interval.
    """
    if not len(mine):
        return
    ends = rows.start[mine] + rows.span[mine]
    begins = np.flatnonzero(np.concatenate(([True], rows.start[mine][1:] > ends[:-1])))
    for first, last in zip(begins, np.append(begins[1:], len(mine)) - 1, strict=True):
        yield int(rows.start[mine[first]]), int(ends[last])
