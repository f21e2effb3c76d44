"""The prices in force: what the site's table and the catalog say, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.money.catalog import catalog
from analytics.money.prices import Price, PriceBook
from analytics.money.window_money import PriceBasis


def in_force(book: PriceBook) -> list[Price]:
    """The site's prices, whenever they hold, then the list prices, the dearest first."""
    listed = [price for model in catalog() if (price := book.from_catalog(model)) is not None]
    stated = [price for prices in book.site.values() for price in prices]
    return sorted(dict.fromkeys([*stated, *listed]), key=lambda price: (price.origin == "catalog", -price.hourly))


def gpus_at(price: Price, basis: Sequence[PriceBasis]) -> int:
    """How many GPUs have this price."""
    return sum(each.gpus for each in basis if each.price == price)
