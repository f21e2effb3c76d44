"""Groups of works that share a card: all that fit are tried, and none spares more than the chosen ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.workloads.sharing import BLOCK, CardSharer, best_groups, best_sharing, fitting_groups, together
from tests.findings.scenarios.builder import GB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CARD = 80 * GB


def random_candidates(rng: np.random.Generator, number: int) -> list[CardSharer]:
    """Works with a time of day, some of which were there for a part of the hours only."""
    hours = np.arange(72)
    found = []
    for each in range(number):
        wave = 1 + 0.5 * np.sin((hours / 24 + rng.random()) * 2 * np.pi)
        pct = np.clip(rng.uniform(3, 60) * wave, 0, 100)
        histogram = np.bincount(np.ceil(pct).astype(int), minlength=101)[:101].astype(np.int64)
        if rng.random() < 0.3:
            pct[: rng.integers(0, 60)] = np.nan
        found.append(CardSharer(each, f"g{each}", "ann", int(rng.uniform(0.05, 0.55) * CARD), pct, histogram))
    return found


def most_spared(fitting: Sequence[tuple[int, ...]]) -> int:
    """By trying every choice of groups without a common member."""
    best = 0
    for place, group in enumerate(fitting):
        rest = [each for each in fitting[place + 1 :] if not set(each) & set(group)]
        best = max(best, len(group) - 1 + most_spared(rest))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_every_group_that_fits_is_tried_and_no_choice_spares_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    those = random_candidates(rng, 8)
    gives_way = frozenset(each.work for each in those if rng.random() < 0.6)
    fitting = set(fitting_groups(those, gives_way, CARD))
    assert fitting == set(by_hand(those, gives_way))
    found = best_sharing(those, gives_way, CARD)
    members = [member.work for group in found.groups for member in group.members]
    assert len(members) == len(set(members))
    spared = sum(len(group.members) - 1 for group in found.groups)
    assert spared == found.at_most == most_spared(sorted(fitting))


def by_hand(those: Sequence[CardSharer], gives_way: frozenset[int]) -> Iterable[tuple[int, ...]]:
    pairs = {
        pair
        for pair in itertools.combinations(range(len(those)), 2)
        if together(tuple(those[each] for each in pair), CARD) and gives_way & {those[each].work for each in pair}
    }
    yield from pairs
    for three in itertools.combinations(range(len(those)), 3):
        if pairs.issuperset(itertools.combinations(three, 2)) and together(tuple(those[each] for each in three), CARD):
            yield three


def test_more_than_a_block_has_a_bound_and_the_same_result_each_time() -> None:
    those = random_candidates(np.random.default_rng(5), BLOCK + 20)
    gives_way = frozenset(range(0, BLOCK + 20, 2))
    first, again = (best_sharing(those, gives_way, CARD) for _ in range(2))
    assert [[each.work for each in group.members] for group in first.groups] == [
        [each.work for each in group.members] for group in again.groups
    ]
    spared = sum(len(each.members) - 1 for each in first.groups)
    assert 0 < spared <= first.at_most < len(those)


def test_without_groups_nothing_is_spared(capfd: pytest.CaptureFixture[str]) -> None:
    assert best_groups([], 3).at_most == 0
    assert best_groups([(0, 1), (1, 2)], 3).at_most == 1
    # the standard output is that of --json
    assert capfd.readouterr().out == ""
