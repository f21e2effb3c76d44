"""Which cards hold a need: parts, several cards, what is sure, and in which order."""

from __future__ import annotations

import pytest

from analytics.money.cards import Card, card
from analytics.plan.card_options import CardOption, card_options, times_as_long
from analytics.plan.model_needs import MemoryNeed
from analytics.workloads.cards import Demand, Offer

GIB = 2**30


def known(name: str) -> Card:
    found = card(name)
    assert found is not None
    return found


def offer(name: str, hourly: float | None = 1.0, there: int = 8) -> Offer:
    """A card of the fleet; with `there` 0 one of the market."""
    return Offer(known(name), name if there else None, there, hourly, None if hourly is None else "site")


def options(gib: float, *offers: Offer, counts: tuple[int, ...] = (1, 2, 4, 8)) -> list[tuple[str, int, str, bool]]:
    found = card_options(offers, lambda cards: MemoryNeed((("all", gib * GIB / cards),), 1.15 * gib * GIB / cards), lambda _: counts)  # fmt: skip
    return [(each.card.name, each.count, each.part.profile.name if each.part else "", each.is_tight) for each in found]


def test_the_smallest_part_and_the_whole_card_of_the_fleet() -> None:
    assert options(7, offer("A100 SXM 80GB")) == [
        ("A100 SXM 80GB", 1, "1g.10gb", False),
        ("A100 SXM 80GB", 1, "", False),
    ]
    assert options(8, offer("A100 SXM 80GB"))[-1] == ("A100 SXM 80GB", 1, "1g.10gb", True), (
        "it fits, but not with the error"
    )
    assert options(30, offer("A100 SXM 80GB"))[0][2] == "3g.40gb"


def test_large_needs_are_split_over_as_few_cards_as_hold_them() -> None:
    assert options(140, offer("L40S"), offer("H100 SXM")) == [("L40S", 4, "", False), ("H100 SXM", 2, "", True)]
    assert options(140, offer("L40S"), counts=(1, 2)) == []


def test_sure_ones_come_before_cheap_ones_and_priced_ones_before_others() -> None:
    sure, tight, unpriced = offer("L40S", 2.0), offer("RTX 4090", 0.5), offer("A40", None)
    names = [name for name, *_ in options(22, unpriced, tight, sure)]
    assert names == ["L40S", "A40", "GeForce RTX 4090"]


def test_no_part_is_rented_and_a_part_costs_its_share() -> None:
    assert [part for _, _, part, _ in options(8, offer("A100 SXM 80GB", there=0))] == [""]
    (part, whole) = card_options((offer("A100 SXM 80GB", 7.0),), lambda _: MemoryNeed((), 0.0), lambda _: (1,))
    assert (part.hourly, whole.hourly) == (pytest.approx(1.0), 7.0)
    assert (part.sm_share, part.memory_share) == (pytest.approx(1 / 7), pytest.approx(1 / 8))


def test_several_cards_say_what_they_speak_over() -> None:
    need = MemoryNeed((), 0.0)
    links = {name: CardOption(known(name), count, need).link for name, count in (("H100 SXM", 2), ("L40S", 4), ("T4", 1))}  # fmt: skip
    assert links == {"H100 SXM": "NVLink", "L40S": "PCIe", "T4": None}


@pytest.mark.parametrize(
    ("busy", "bandwidth", "expected"),
    [(1.0, 0.0, 989.4 / 125), (0.0, 0.9, 0.9 * 3350 / 900), (0.1, 0.1, 1.0), (0.2, 0.0, 0.2 * 989.4 / 125)],
)
def test_work_is_slowed_down_by_what_it_uses(busy: float, bandwidth: float, expected: float) -> None:
    option = CardOption(known("V100 SXM2 32GB"), 1, MemoryNeed((), 0.0))
    assert times_as_long(Demand(0, busy, bandwidth), known("H100 SXM"), option) == pytest.approx(expected)
    unknown = CardOption(known("P40"), 1, MemoryNeed((), 0.0))
    assert times_as_long(Demand(0, busy, bandwidth), known("H100 SXM"), unknown) is None
