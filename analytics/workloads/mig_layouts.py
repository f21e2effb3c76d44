"""How MIG instances lie on as few cards as can be: exact, and without a search.

Every profile takes a power of two of memory slices, begins at a multiple of that, and a larger one takes more compute
slices. So a place that holds a profile holds every smaller one, and two choices never hurt: larger profiles first, and of
the places for one those at the end of the card, which larger ones cannot use. What this fits on a number of cards is all
that any layout does; the least number for which it fits everything is therefore the least there is. The cards are a
given number from the start: whoever opens them one by one fills a card with two 3g, and later 2g find no place.
tests/findings/test_mig_layouts.py compares it with an exhaustive search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from analytics.workloads.mig_profiles import MigFit, memory_slices_of


@dataclass(frozen=True)
class PlacedInstance:
    """One of the profiles that were asked for, by its number, and the memory slice at which it begins."""

    number: int
    start: int


Layout = tuple[PlacedInstance, ...]
"""What lies on one card."""


def fewest_cards(needs: Sequence[MigFit]) -> list[Layout]:
    """The instances on as few cards of one model as can be; those that come first in `needs` lie together."""
    if not needs:
        return []
    memory = memory_slices_of(needs[0].card_slices)
    slices = sum(need.memory_slices for need in needs)
    for cards in range(-(-slices // memory), len(needs) + 1):
        found = layouts(needs, cards)
        if found is not None:
            return found
    raise AssertionError  # a card each is always enough


def layouts(needs: Sequence[MigFit], cards: int) -> list[Layout] | None:
    """The instances on so many cards; None where they do not fit."""
    taken = [0] * cards  # the memory slices of each card as bits
    on_card: list[list[PlacedInstance]] = [[] for _ in range(cards)]
    after: Counter[tuple[tuple[int, int], int]] = (
        Counter()
    )  # the first card that may still have a place, by profile and start
    for number in sorted(range(len(needs)), key=lambda each: _size(needs[each]), reverse=True):
        place = _place(needs[number], taken, after)
        if place is None:
            return None
        card, start = place
        taken[card] |= _bits(needs[number], start)
        on_card[card].append(PlacedInstance(number, start))
    return [tuple(sorted(each, key=lambda one: one.start)) for each in on_card]


def _place(need: MigFit, taken: Sequence[int], after: Counter[tuple[tuple[int, int], int]]) -> tuple[int, int] | None:
    """The first card with a free place as near to its end as any has one."""
    for start in reversed(need.starts):
        bits = _bits(need, start)
        # what is taken stays taken, so that cards that were passed over need not be looked at again
        seen = after[_size(need), start]
        card = next((each for each in range(seen, len(taken)) if not taken[each] & bits), len(taken))
        after[_size(need), start] = card
        if card < len(taken):
            return card, start
    return None


def _bits(need: MigFit, start: int) -> int:
    return ((1 << need.memory_slices) - 1) << start


def _size(need: MigFit) -> tuple[int, int]:
    return need.profile.slices, need.memory_slices
