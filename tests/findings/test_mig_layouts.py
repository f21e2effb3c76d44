"""MIG instances on cards: placed as the driver allows, and on as few cards as an exhaustive search needs."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.workloads.mig_profiles import MigFit, fewest_cards, fits, layouts, memory_slices_of
from tests.findings.scenarios.builder import A30, H100

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.workloads.mig_profiles import Layout

MODELS = (H100.model, A30.model)
PROFILES = {model: {each.profile.name: each for each in fits(model)} for model in MODELS}


def asked(names: str, model: str = H100.model) -> list[MigFit]:
    """Profiles by the part of their name before the memory, `1g+` for the one with twice the memory."""
    found = {name.split(".")[0]: fit for name, fit in reversed(PROFILES[model].items())}
    return [PROFILES[model]["1g.20gb"] if name == "1g+" else found[name] for name in names.split()]


def test_the_places_are_those_that_the_driver_lists() -> None:
    """`nvidia-smi mig -lgipp` of an H100 and of an A30."""
    assert {name: (each.starts, each.memory_slices) for name, each in PROFILES[H100.model].items()} == {
        "1g.10gb": ((0, 1, 2, 3, 4, 5, 6), 1),
        "1g.20gb": ((0, 2, 4, 6), 2),
        "2g.20gb": ((0, 2, 4), 2),
        "3g.40gb": ((0, 4), 4),
        "4g.40gb": ((0,), 4),
    }
    assert {name: each.starts for name, each in PROFILES[A30.model].items()} == {
        "1g.6gb": (0, 1, 2, 3),
        "2g.12gb": (0, 2),
    }


@pytest.mark.parametrize(
    ("names", "cards"),
    [
        ("1g 1g 1g 1g 1g 1g 1g", 1),
        ("1g 1g 1g 1g 1g 1g 1g 1g", 2),  # eight memory slices, seven for compute
        ("3g 3g", 1),
        ("4g 3g", 1),
        ("3g 3g 1g", 2),  # seven compute slices, and no memory is left
        ("3g 1g 1g 1g 1g", 1),  # 3g at the end of the card
        ("3g 1g 1g 1g 1g 1g", 2),
        ("2g 2g 2g 1g", 1),
        ("2g 2g 2g 2g", 2),  # eight memory slices, and none for a fourth to begin at
        ("2g 2g 2g 1g+", 1),  # the last place has memory for two and compute for one
        ("1g+ 1g+ 1g+ 1g+", 1),
        ("4g 4g", 2),
        ("3g 3g 2g 2g 2g 2g", 2),  # whoever fills the first card with both 3g needs a third
    ],
)
def test_how_many_cards_some_profiles_take(names: str, cards: int) -> None:
    assert len(fewest_cards(asked(names))) == cards
    assert (layouts(asked(names), 1) is None) == (cards > 1)
    assert fewest_cards([]) == []


NEEDS = st.sampled_from(MODELS).flatmap(lambda model: st.lists(st.sampled_from(fits(model)), min_size=1, max_size=40))


@given(NEEDS)
def test_no_instance_lies_where_the_driver_would_refuse_it(needs: Sequence[MigFit]) -> None:
    found = fewest_cards(needs)
    assert sorted(one.number for each in found for one in each) == list(range(len(needs)))
    for each in found:
        check_layout(needs, each)


def check_layout(needs: Sequence[MigFit], layout: Layout) -> None:
    taken: Counter[int] = Counter()
    for one in layout:
        assert one.start in needs[one.number].starts
        taken.update(range(one.start, one.start + needs[one.number].memory_slices))
    assert max(taken.values()) == 1
    assert max(taken) < memory_slices_of(needs[0].card_slices)
    assert sum(needs[one.number].profile.slices for one in layout) <= needs[0].card_slices


@given(st.sampled_from(MODELS).flatmap(lambda model: st.lists(st.sampled_from(fits(model)), min_size=1, max_size=12)))
def test_no_layout_needs_fewer_cards(needs: Sequence[MigFit]) -> None:
    kinds = fits(H100.model) if needs[0] in fits(H100.model) else fits(A30.model)
    counts = tuple(sum(each == kind for each in needs) for kind in kinds)
    assert len(fewest_cards(needs)) == fewest(kinds, counts)


@cache
def fewest(kinds: tuple[MigFit, ...], counts: tuple[int, ...]) -> int:
    """The same by trying every layout of a card."""
    if not any(counts):
        return 0
    useful = {tuple(max(want - has, 0) for want, has in zip(counts, each, strict=True)) for each in full_cards(kinds)}
    return 1 + min(fewest(kinds, rest) for rest in useful if rest != counts)


@cache
def full_cards(kinds: tuple[MigFit, ...]) -> frozenset[tuple[int, ...]]:
    """How many of each profile a card can hold, every set to which none can be added."""
    found: set[tuple[int, ...]] = set()

    def add(taken: frozenset[int], counts: tuple[int, ...]) -> None:
        larger = False
        for kind, fit in enumerate(kinds):
            for start in fit.starts:
                own = frozenset(range(start, start + fit.memory_slices))
                if own & taken:
                    continue
                larger = True
                more = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
                if (taken | own, more) not in seen:
                    seen.add((taken | own, more))
                    add(taken | own, more)
        if not larger:
            found.add(counts)

    seen: set[tuple[frozenset[int], tuple[int, ...]]] = set()
    add(frozenset(), (0,) * len(kinds))
    return frozenset(found)
