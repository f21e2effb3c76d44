"""Which cards hold some work, the cheapest first: whole ones, several of them, and parts of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analytics.money.cards import Card, card, cards
from analytics.money.prices import PriceBook
from analytics.plan.model_needs import MemoryNeed
from analytics.workloads.cards import Demand, Offer, present_gpus, shelf
from analytics.workloads.mig_profiles import MigFit, fits
from analytics.workloads.model import Context, once_per_context

COUNTS = (1, 2, 4, 8)
"""Cards over which a model is split: those of one host."""

NVLINK, PCIE = "NVLink", "PCIe"


@dataclass(frozen=True)
class CardOption:
    """Some cards of one kind, or a part of one, that hold the work.

    `need` is that of each card. `model` is the fleet's own name of it, None for one that the fleet does not have; `there` says
    how many of it the fleet has. `hourly` is the price of all of them together, None where nobody states one; `origin` says
    whether the site or the catalog does. `is_tight`: the estimate fits, but not with its error.
    """

    card: Card
    count: int
    need: MemoryNeed
    part: MigFit | None = None
    model: str | None = None
    there: int = 0
    hourly: float | None = None
    origin: str | None = None
    is_tight: bool = False

    @property
    def link(self) -> str | None:
        """What several cards speak over; None for one."""
        if self.count == 1:
            return None
        return NVLINK if self.card.nvlink_gb_per_s else PCIE

    @property
    def sm_share(self) -> float:
        """The share of a card's processors that it has."""
        return 1.0 if self.part is None else self.part.sm_share

    @property
    def memory_share(self) -> float:
        """The share of a card's memory and bandwidth that it has."""
        return 1.0 if self.part is None else self.part.memory_share


def card_options(
    offers: Iterable[Offer], need_of: Callable[[int], MemoryNeed], counts_of: Callable[[Offer], Sequence[int]]
) -> tuple[CardOption, ...]:
    """For each offer the fewest cards that hold the work, and of the fleet's the smallest part of one: sure ones first, the cheapest first.

    Args:
        offers: the cards, with the price of one.
        need_of: what each of so many cards needs.
        counts_of: how many of an offer's cards can work together, in order.
    """
    found = [option for offer in offers for option in _options(offer, need_of, counts_of(offer))]
    return tuple(sorted(found, key=_rank))


def fleet_offers(context: Context) -> tuple[Offer, ...]:
    """The cards that the fleet has."""
    return tuple(offer for offer in shelf(context).fleet.values() if offer.gpus)


def unknown_models(context: Context) -> tuple[str, ...]:
    """The fleet's models that are not in the table of cards: nothing can be said of them."""
    there = present_gpus(context)
    devices = [each for each in context.inventory.devices.values() if each.gpu in there and not each.parent_gpu]
    return tuple(sorted({each.model for each in devices if each.model and card(each.model) is None}))


def market_offers(context: Context, prices: PriceBook) -> tuple[Offer, ...]:
    """The cards that the fleet does not have, consumer cards included; without a price where nobody states one."""
    own = {offer.card for offer in fleet_offers(context)}
    found = ((each, prices.hourly(each.name, None)) for each in cards() if each not in own)
    return tuple(
        Offer(each) if price is None else Offer(each, hourly=float(price.hourly), origin=price.origin)
        for each, price in found
    )


@once_per_context
def host_widths(context: Context) -> Mapping[str, int]:
    """The most cards of each of the fleet's models on one host."""
    there = present_gpus(context)
    per_host = Counter(
        (device.model, device.host)
        for device in context.inventory.devices.values()
        if device.model is not None and device.gpu in there
    )
    widths: dict[str, int] = {}
    for (model, _), number in per_host.items():
        widths[model] = max(number, widths.get(model, 0))
    return widths


def times_as_long(demand: Demand, present: Card, option: CardOption) -> float | None:
    """How many times as long work that makes such use of its present card takes, by peak rates; None where one is not known.

    What it leaves unused of the present card costs nothing; it is never faster than it is.
    """
    rates = (present.fp16_tflops, option.card.fp16_tflops, present.bandwidth_gb_per_s, option.card.bandwidth_gb_per_s)
    rate, other_rate, flow, other_flow = rates
    if rate is None or other_rate is None or flow is None or other_flow is None:
        return None
    computing = demand.busy_share * rate / (other_rate * option.sm_share)
    reading = demand.bandwidth_share * flow / (other_flow * option.memory_share)
    return max(1.0, computing, reading)


def _options(offer: Offer, need_of: Callable[[int], MemoryNeed], counts: Sequence[int]) -> Iterator[CardOption]:
    if 1 in counts and offer.model is not None:  # nobody rents out a part of a card at its share of the price
        alone = need_of(1)
        for part in fits(offer.card.name):
            if alone.total <= part.profile.memory_bytes:
                yield _option(offer, 1, alone, part)
                break
    for count in counts:
        need = need_of(count)
        if need.total <= offer.card.memory_bytes:
            yield _option(offer, count, need, None)
            break


def _option(offer: Offer, count: int, need: MemoryNeed, part: MigFit | None) -> CardOption:
    memory = offer.card.memory_bytes if part is None else part.profile.memory_bytes
    share = 1.0 if part is None else part.sm_share
    return CardOption(
        card=offer.card,
        count=count,
        need=need,
        part=part,
        model=offer.model,
        there=offer.gpus,
        hourly=None if offer.hourly is None else offer.hourly * count * share,
        origin=offer.origin,
        is_tight=need.high > memory,
    )


def _rank(option: CardOption) -> tuple[bool, bool, float, int, float, str]:
    price = option.hourly or 0.0
    memory = option.card.memory_bytes * option.memory_share
    return (option.is_tight, option.hourly is None, price, option.count, memory, option.card.name)
