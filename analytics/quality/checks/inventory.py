"""GPUs of which the inventory or the price table does not say enough, and GPUs that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.ledger.text import count
from analytics.quality.model import Remark, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.quality.model import Data


def unlisted(data: Data) -> Iterator[Remark]:
    """GPUs without an inventory entry, or with one that names no model."""
    gpus = data.stretches["gpu"].unique().sort()
    absent = [gpu for gpu in gpus if gpu not in data.inventory.devices]
    if absent:
        sentence = f"{count(len(absent), 'GPU')} without an inventory entry: model, memory and pool are unknown"
        yield Remark("no_inventory", sentence, len(absent), absent[0])
    nameless = [gpu for gpu in gpus if gpu in data.inventory.devices and data.inventory.devices[gpu].model is None]
    if nameless:
        sentence = (
            f"{count(len(nameless), 'GPU')} without a model's name: nothing is said of a card that would fit better"
        )
        yield Remark("no_model", sentence, len(nameless), nameless[0])


def unpriced(data: Data) -> Iterator[Remark]:
    """Models without a price: any sum that they are part of is left out rather than too low."""
    if data.missing_prices:
        ranked = sorted(data.missing_prices, key=lambda name: (-data.missing_prices[name], name))
        gpus = sum(data.missing_prices.values())
        sentence = (
            f"{count(gpus, 'GPU')} without a price ({named(ranked, 'kind')}): every cost that they are part of is left out; "
            "name a price in the file of money.prices"
        )
        yield Remark("no_price", sentence, gpus, ranked[0])


def simulated(data: Data) -> Iterator[Remark]:
    """GPUs that exist in a simulation only."""
    gpus = data.stretches["gpu"].unique().sort()
    unreal = [gpu for gpu in gpus if data.inventory.simulated(gpu)]
    if unreal:
        real = "" if len(unreal) == len(gpus) else f" of {len(gpus)}"
        sentence = (
            f"{len(unreal)}{real} GPU{'' if len(gpus) == 1 else 's'} simulated: their figures are no measurements"
        )
        yield Remark("simulated", sentence, len(unreal), unreal[0])
