"""What stretches of the ledger cost."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.devices import Inventory
    from analytics.money.prices import Price, PriceBook

RATES = {"gpu": pl.String, "rate": pl.Float64}


class Costs:
    """GPU time at its price. A MIG instance costs its share of its GPU's price; what has no price has no cost."""

    def __init__(self, prices: PriceBook, inventory: Inventory) -> None:
        """Prices by model and pool, and which GPU is of which."""
        self._prices = prices
        self._inventory = inventory

    @property
    def currency(self) -> str:
        """The currency of every cost."""
        return self._prices.currency

    def price_of(self, gpu: str) -> Price | None:
        """The price in force for a GPU or a whole GPU's worth of a MIG instance; None where there is none."""
        model, pool = self._priced_as(gpu)
        return self._prices.hourly(model, pool)

    def rate_of(self, gpu: str) -> float | None:
        """What an hour of the whole GPU costs; None where no price is known."""
        return self._rates.get(gpu)

    def of(self, stretches: pl.DataFrame) -> float | None:
        """The cost of rows with `gpu`, `time`, `end` and `gpu_share`; None where any of their time has no price."""
        gpu_ms: dict[str, float] = defaultdict(float)
        times = (stretches["end"] - stretches["time"]) * stretches["gpu_share"]
        for gpu, time_ms in zip(stretches["gpu"].to_list(), times.to_list(), strict=True):
            gpu_ms[gpu] += time_ms
        if not gpu_ms.keys() <= self._rates.keys():
            return None
        return sum((self._rates[gpu] * time_ms / HOUR_MS for gpu, time_ms in gpu_ms.items()), 0.0)

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """Model and pool of every GPU of the inventory that has no price, sorted; in words where one is not known."""
        return self.missing_of(self._inventory.devices)

    def missing_of(self, gpus: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """The same for some GPUs."""
        return tuple(
            sorted({(self._inventory.model(gpu), self._inventory.pool(gpu)) for gpu in gpus if gpu not in self._rates})
        )

    def rates(self) -> pl.DataFrame:
        """`gpu` and `rate` per hour of every GPU that has a price."""
        return pl.DataFrame({"gpu": list(self._rates), "rate": list(self._rates.values())}, schema=RATES)

    @cached_property
    def _rates(self) -> Mapping[str, float]:
        kinds = {gpu: self._priced_as(gpu) for gpu in self._inventory.devices}
        prices = {kind: self._prices.hourly(*kind) for kind in set(kinds.values())}
        return {gpu: float(price.hourly) for gpu, kind in kinds.items() if (price := prices[kind]) is not None}

    def _priced_as(self, gpu: str) -> tuple[str | None, str | None]:
        """Model and pool; those of its GPU for a MIG instance that has none of its own."""
        device = self._inventory.devices.get(gpu)
        if device is None:
            return None, None
        parent = self._inventory.devices.get(device.parent_gpu or "")
        model = device.model or (parent.model if parent else None)
        return model, device.pool or (parent.pool if parent else None)
