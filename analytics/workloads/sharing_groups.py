"""Groups of workloads that spare the most cards by sharing them: every pair and triple that fits, and the best choice of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.workloads.best_groups import best_groups
from analytics.workloads.sharing import (
    ALIGNED_MIN_HOURS,
    BUSY_MAX_PCT,
    BUSY_SHARE,
    GROUP_MAX,
    MEMORY_MAX_SHARE,
    Candidate,
    Group,
    together,
)

BLOCK = 40
"""Candidates that are looked at together: 9,880 triples, which the solver proves best in a tenth of a second."""
ROUNDS = 3
"""Where there are more, those that are left over are looked at again in other blocks."""

_LEVELS = int(BUSY_MAX_PCT) + 1


@dataclass(frozen=True)
class Sharing:
    """The groups, and how many cards no choice could spare more than."""

    groups: tuple[Group, ...]
    at_most: int


def best_sharing(those: Sequence[Candidate], best_effort: frozenset[int], card_bytes: int) -> Sharing:
    """Pairs and triples that spare the most cards; at most one of a group is not best effort, for the others have to give way.

    Args:
        those: candidates of one model, each with a card of its own.
        best_effort: the numbers of those that may be slowed or stopped.
        card_bytes: the memory of a card.
    """
    left = sorted(those, key=lambda each: (each.work in best_effort, -each.memory_bytes, each.work))
    proven = len(left) <= BLOCK
    found: list[Group] = []
    for _ in range(1 if proven else ROUNDS):
        blocks = -(-len(left) // BLOCK)
        # each block has its part of those that give way, and of large and small ones
        made = [_in_block(left[first::blocks], best_effort, card_bytes) for first in range(blocks)]
        found += [group for each in made for group in each.groups]
        grouped = {member.work for group in found for member in group.members}
        left = [each for each in left if each.work not in grouped]
        if proven:
            return Sharing(tuple(found), sum(each.at_most for each in made))
    return Sharing(tuple(found), _bound(those, best_effort, card_bytes))


def _in_block(block: Sequence[Candidate], best_effort: frozenset[int], card_bytes: int) -> Sharing:
    fitting = fitting_groups(block, best_effort, card_bytes)
    choice = best_groups(fitting, len(block))
    tried = (together(tuple(block[each] for each in fitting[number]), card_bytes) for number in choice.chosen)
    return Sharing(tuple(group for group in tried if group is not None), choice.at_most)


def _bound(those: Sequence[Candidate], best_effort: frozenset[int], card_bytes: int) -> int:
    """What no choice can spare more than: a card holds so many, one that is not best effort, and so much memory."""
    important = sum(each.work not in best_effort for each in those)
    memory = sum(each.memory_bytes for each in those)
    cards = max(important, -(-len(those) // GROUP_MAX), int(np.ceil(memory / (MEMORY_MAX_SHARE * card_bytes))))
    return len(those) - cards


def fitting_groups(those: Sequence[Candidate], best_effort: frozenset[int], card_bytes: int) -> list[tuple[int, ...]]:
    """Every pair of which `together` makes a group and one is best effort, and the triples that have such pairs only; by place."""
    if len(those) < 2:
        return []
    memory = np.array([each.memory_bytes for each in those], np.float64)
    gives_way = np.array([each.work in best_effort for each in those])
    hourly = np.array([each.hourly_pct for each in those])
    shares = np.array([each.histogram / each.histogram.sum() for each in those])
    within = np.cumsum(shares, axis=1)[
        :, _LEVELS - 1 :: -1
    ]  # what each stays within, from what the others leave down to 0
    room = MEMORY_MAX_SHARE * card_bytes
    one, two = np.triu_indices(len(those), 1)
    kept = (memory[one] + memory[two] <= room) & (gives_way[one] | gives_way[two])
    one, two = one[kept], two[kept]
    bursts = np.einsum("ij,ij->i", shares[one][:, :_LEVELS], within[two])
    kept = (bursts >= BUSY_SHARE - 1e-9) & _calm(hourly[one] + hourly[two])
    one, two = one[kept], two[kept]
    beside = np.zeros((len(those), len(those)), np.bool_)
    beside[one, two] = True
    pair, third = np.nonzero(beside[one] & beside[two])
    kept = memory[one[pair]] + memory[two[pair]] + memory[third] <= room
    pair, third = pair[kept], third[kept]
    both = np.array([np.convolve(shares[a], shares[b])[:_LEVELS] for a, b in zip(one, two, strict=True)])
    if len(pair):
        bursts = np.einsum("ij,ij->i", both[pair], within[third])
        kept = (bursts >= BUSY_SHARE - 1e-9) & _calm(hourly[one[pair]] + hourly[two[pair]] + hourly[third])
        pair, third = pair[kept], third[kept]
    pairs = list(zip(one.tolist(), two.tolist(), strict=True))
    return [*pairs, *((*pairs[each], other) for each, other in zip(pair.tolist(), third.tolist(), strict=True))]


def _calm(sums: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows of summed hours are long enough and stay within BUSY_MAX_PCT for BUSY_SHARE of them; NaN is no hour of all."""
    hours = (~np.isnan(sums)).sum(axis=1)
    at = np.maximum(np.ceil(BUSY_SHARE * hours).astype(np.int64) - 1, 0)
    level: NDArray[np.float64] = np.take_along_axis(np.sort(sums, axis=1), at[:, None], axis=1)[:, 0]  # NaN comes last
    calm: NDArray[np.bool_] = (hours >= ALIGNED_MIN_HOURS) & (level <= BUSY_MAX_PCT)
    return calm
