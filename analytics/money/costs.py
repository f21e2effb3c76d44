"""What stretches of the ledger cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

import polars as pl

from analytics.inventory import Inventory
from analytics.money.prices import Price, PriceBook
from analytics.money.terms import ALWAYS_MS, NEVER_MS, PriceTerm, split, terms_of
from fallow.clock import HOUR_MS

RATES = {"gpu": pl.String, "since": pl.Int64, "rate": pl.Float64}

_SPANS = ("gpu", "time", "end", "gpu_share")


class Costs:
    """GPU time at the price of its time. A MIG instance costs its share of its GPU's price; what has no price has no cost."""

    def __init__(self, prices: PriceBook, inventory: Inventory) -> None:
        """Prices by model and pool, and which GPU is of which."""
        self._prices = prices
        self._inventory = inventory

    @property
    def currency(self) -> str:
        """The currency of every cost."""
        return self._prices.currency

    @property
    def prices(self) -> PriceBook:
        """What the costs are made from."""
        return self._prices

    def price_of(self, gpu: str) -> Price | None:
        """The newest price of a GPU or a whole GPU's worth of a MIG instance; None where there is none."""
        return None if (term := self._newest.get(gpu)) is None else term.price

    def rate_of(self, gpu: str) -> float | None:
        """What an hour of the whole GPU costs at its newest price; None where no price is known."""
        return None if (term := self._newest.get(gpu)) is None else term.rate

    def of(self, stretches: pl.DataFrame) -> float | None:
        """The cost of rows with `gpu`, `time`, `end` and `gpu_share`; None where any of their time has no price."""
        gpus = stretches["gpu"].to_list()
        if not self._changing.isdisjoint(gpus):
            return self._of_changing(stretches)
        gpu_ms: dict[str, float] = defaultdict(float)
        times = (stretches["end"] - stretches["time"]) * stretches["gpu_share"]
        for gpu, time_ms in zip(gpus, times.to_list(), strict=True):
            gpu_ms[gpu] += time_ms
        rates = {gpu: self.rate_of(gpu) for gpu in gpu_ms}
        costs = [rate * gpu_ms[gpu] / HOUR_MS for gpu, rate in rates.items() if rate is not None]
        return sum(costs, 0.0) if len(costs) == len(rates) else None

    def _of_changing(self, stretches: pl.DataFrame) -> float | None:
        """The same where a GPU among them changed its pool or its price."""
        rows = self.at_their_time(stretches.select(_SPANS)).join(self.rates(), on=("gpu", "since"), how="left")
        if rows["rate"].null_count():
            return None
        hours = (pl.col("end") - pl.col("time")) * pl.col("gpu_share") / HOUR_MS
        return float(rows.select((hours * pl.col("rate")).sum()).item())

    def at_their_time(self, stretches: pl.DataFrame) -> pl.DataFrame:
        """The ledger's rows cut where a GPU's model, pool or price changed, with `since`, the start of the term of each."""
        return split(stretches, self.terms)

    def rates(self) -> pl.DataFrame:
        """`gpu`, `since` and `rate` per hour of every GPU's terms that have a price."""
        priced = [
            (gpu, term.since_ms, rate)
            for gpu, terms in self.terms.items()
            for term in terms
            if (rate := term.rate) is not None
        ]
        return pl.DataFrame(priced, schema=RATES, orient="row")

    @cached_property
    def terms(self) -> Mapping[str, tuple[PriceTerm, ...]]:
        """The terms of every GPU, in order."""
        return terms_of(self._inventory, self._prices)

    @cached_property
    def _changing(self) -> frozenset[str]:
        return frozenset(gpu for gpu, terms in self.terms.items() if len(terms) > 1)

    @cached_property
    def _newest(self) -> Mapping[str, PriceTerm]:
        """The terms at the newest entry of the inventory: prices of a day to come are not in force yet."""
        newest_ms = self._inventory.newest_ms
        now_ms = NEVER_MS - 1 if newest_ms is None else min(max(newest_ms, ALWAYS_MS), NEVER_MS - 1)
        return {
            gpu: next(term for term in terms if term.since_ms <= now_ms < term.until_ms)
            for gpu, terms in self.terms.items()
        }
