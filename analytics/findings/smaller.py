"""Which smaller, older or cheaper card would do for a run, by its memory and by what it asks of the processors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.findings.memory import PEAK_MAX_SHARE
from analytics.findings.once import once
from analytics.money.cards import Card, card, cards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.findings.model import Context

BFLOAT16_SINCE = 2020
"""The year of Ampere: older cards have no bfloat16, in which most models are trained today."""
_NOT_FOR_SERVERS = ("GeForce", "TITAN", "Quadro", "RTX")
"""Cards that nobody buys for a server; they are recommended only where the fleet has them."""


@dataclass(frozen=True)
class Demand:
    """What a run asks of a card: its peak memory, and shares of the present card's processors and memory bandwidth."""

    peak_bytes: int
    busy_share: float
    bandwidth_share: float
    less_memory: bool = False  # a card with as much memory is no answer


@dataclass(frozen=True)
class Choice:
    """A card that would do; `model` is the fleet's own name of it, None where the fleet has none."""

    card: Card
    model: str | None
    price: float | None  # per hour, in the context's currency
    present_price: float | None

    @property
    def saving_per_hour(self) -> float | None:
        """What an hour on it costs less; None where a price is missing."""
        if self.price is None or self.present_price is None:
            return None
        return self.present_price - self.price


@dataclass(frozen=True)
class Shelf:
    """Cards to choose from: those of the fleet by their model's name, then those of the catalog."""

    fleet: Mapping[str, Card]
    catalog: tuple[Card, ...]
    prices: Mapping[str, float]

    def choose(self, model: str, demand: Demand) -> Choice | None:
        """The cheapest card that would do: of the fleet where it has one, of the catalog otherwise.

        It has less of something and more of nothing than the present card, holds the peak with the room that is wanted, and
        reaches the rates that the run makes use of. Where prices are unknown the least powerful comes first.
        """
        present = card(model)
        if present is None:
            return None
        owned = [(each, name) for name, each in self.fleet.items()]
        for place in (owned, [(each, None) for each in self.catalog]):
            fitting = [
                Choice(each, name, self.price(name or each.name), self.price(model))
                for each, name in place
                if _does(each, present, demand)
            ]
            cheaper = [each for each in fitting if _no_dearer(each, present)]
            if cheaper:
                return min(cheaper, key=_rank)
        return None

    def price(self, model: str) -> float | None:
        """The model's price per hour; None is unknown."""
        return self.prices.get(model)


@once
def shelf(context: Context) -> Shelf:
    """What the fleet has, what there is, and what it costs; cards that only exist split are not on it."""
    whole = {each.model for each in context.inventory.devices.values() if not (each.parent_gpu or each.mig_enabled)}
    fleet = {model: known for model in sorted(filter(None, whole)) if (known := card(model)) is not None}
    catalog = tuple(each for each in cards() if not each.name.startswith(_NOT_FOR_SERVERS))
    names = {*fleet, *(each.name for each in catalog)}
    prices = {name: price for name in names if (price := hourly_price(context, name)) is not None}
    return Shelf(fleet, catalog, prices)


def slowdown(present: Card, other: Card) -> float | None:
    """How many times as long a step that fills the present card takes on the other, by peak FP16 rate; None is unknown."""
    if not present.fp16_tflops or not other.fp16_tflops:
        return None
    return present.fp16_tflops / other.fp16_tflops


def _does(other: Card, present: Card, demand: Demand) -> bool:
    rate, had = other.fp16_tflops, present.fp16_tflops
    flow, flowed = other.bandwidth_gb_per_s, present.bandwidth_gb_per_s
    if rate is None or had is None or flow is None or flowed is None:
        return False
    keeps_up = demand.busy_share * had <= rate <= had and flow >= demand.bandwidth_share * flowed
    less_memory = other.memory_bytes < present.memory_bytes
    smaller = less_memory or (not demand.less_memory and rate < had and other.memory_bytes == present.memory_bytes)
    return keeps_up and smaller and demand.peak_bytes <= PEAK_MAX_SHARE * other.memory_bytes


def _no_dearer(choice: Choice, present: Card) -> bool:
    """Whether it costs less; where a price is missing, whether it has less of everything."""
    if choice.saving_per_hour is not None:
        return choice.saving_per_hour > 0
    return (choice.card.bandwidth_gb_per_s or 0.0) <= (present.bandwidth_gb_per_s or 0.0)


def _rank(choice: Choice) -> tuple[bool, float, float, int, str]:
    """Priced ones first, cheapest first; then the least powerful, with the least memory."""
    unpriced = choice.price is None
    return (unpriced, choice.price or 0.0, choice.card.fp16_tflops or 0.0, choice.card.memory_bytes, choice.card.name)
