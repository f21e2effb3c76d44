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
            cheaper = [each for each in fitting if (saved := each.saving_per_hour) is None or saved > 0]
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
    rates = (
        (other.fp16_tflops, present.fp16_tflops, demand.busy_share),
        (other.bandwidth_gb_per_s, present.bandwidth_gb_per_s, demand.bandwidth_share),
    )
    for has, had, share in rates:
        if has is None or had is None or has > had or has < share * had:
            return False
    smaller = other.memory_bytes < present.memory_bytes or rates[0][0] != rates[0][1]
    fits = demand.peak_bytes <= PEAK_MAX_SHARE * other.memory_bytes
    return fits and smaller and other.memory_bytes <= present.memory_bytes


def _rank(choice: Choice) -> tuple[bool, float, float, int, str]:
    """Priced ones first, cheapest first; then the least powerful, with the least memory."""
    unpriced = choice.price is None
    return (unpriced, choice.price or 0.0, choice.card.fp16_tflops or 0.0, choice.card.memory_bytes, choice.card.name)
