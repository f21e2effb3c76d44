"""Which works could share one card: a greedy matching that puts each GPU into one group at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MEMORY_MAX_SHARE = 0.9
BUSY_MAX_PCT = 80.0
BUSY_SHARE = 0.95
ALIGNED_MIN_HOURS = 24
GROUP_MAX = 3


@dataclass(frozen=True)
class Candidate:
    """One work on one GPU: hourly means of utilization on a common grid of hours (NaN: not there), and the time at each percent."""

    work: int
    gpu: str
    holder: str | None
    memory_bytes: int
    hourly_pct: NDArray[np.float64]
    histogram: NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Works that might share a card: memory together, hours seen side by side, and what 95 % of the time stay within.

    `aligned_pct` is of the sums of hourly means, `bursts_pct` of the sum of the samples if they do not move together.
    """

    members: tuple[Candidate, ...]
    memory_bytes: int
    aligned_hours: int
    aligned_pct: float
    bursts_pct: float


def groups(candidates: Sequence[Candidate], card_bytes: int) -> list[Group]:
    """Pairs and triples of candidates of one host and model, the largest first; each GPU is in one of them at most."""
    left = sorted(candidates, key=lambda each: (-each.memory_bytes, each.work))
    found: list[Group] = []
    while len(left) > 1:
        anchor = left.pop(0)
        group = _grown(anchor, left, card_bytes)
        if group is not None:
            found.append(group)
            taken = {each.gpu for each in group.members}
            left = [each for each in left if each.gpu not in taken]
    return found


def _grown(anchor: Candidate, left: Sequence[Candidate], card_bytes: int) -> Group | None:
    """The anchor with one partner or two, its own holder's work first."""
    group: Group | None = None
    members: tuple[Candidate, ...] = (anchor,)
    for each in sorted(left, key=lambda other: (other.holder != anchor.holder, -other.memory_bytes, other.work)):
        if len(members) == GROUP_MAX:
            break
        if any(each.gpu == member.gpu for member in members):
            continue
        tried = together((*members, each), card_bytes)
        if tried is not None:
            group, members = tried, tried.members
    return group


def together(members: tuple[Candidate, ...], card_bytes: int) -> Group | None:
    """The group, if memory and both sums of utilization leave room and the works were seen side by side for a day."""
    memory = sum(each.memory_bytes for each in members)
    if memory > MEMORY_MAX_SHARE * card_bytes:
        return None
    sums = np.sum([each.hourly_pct for each in members], axis=0)
    aligned = np.sort(sums[~np.isnan(sums)])
    if len(aligned) < ALIGNED_MIN_HOURS:
        return None
    aligned_pct = float(aligned[max(int(np.ceil(BUSY_SHARE * len(aligned))) - 1, 0)])
    if aligned_pct > BUSY_MAX_PCT:
        return None
    bursts_pct = _independent_pct([each.histogram for each in members])
    if bursts_pct > BUSY_MAX_PCT:
        return None
    return Group(members, memory, len(aligned), aligned_pct, bursts_pct)


def _independent_pct(histograms: Sequence[NDArray[np.int64]]) -> float:
    """What the sum of independent values stays within for BUSY_SHARE of the time: the convolution of their shares of time.

    Percents in histograms are rounded down, so that the sum is up to one point too low for each.
    """
    shares = np.ones(1)
    for histogram in histograms:
        shares = np.convolve(shares, histogram / histogram.sum())
    return float(np.searchsorted(np.cumsum(shares), BUSY_SHARE - 1e-9) + len(histograms))
